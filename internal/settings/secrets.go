package settings

import (
	"fmt"
	"os"
)

// SecretsExposed checks the files that contain secrets. It returns a sentence for each file that
// users outside of the file's group can read, or that users other than the owner can change. The
// sentence names the setting, the file and its mode. A file that cannot be examined gives no
// sentence, because the code that reads it reports the error.
//
// Exposed secrets are warnings and not errors, because containers mount secrets with modes that the
// operator cannot choose.
func (s *Settings) SecretsExposed() (all []string) {
	files := []struct{ flag, path string }{
		{"cluster-secret", s.Engine.Secret}, {"nats-creds", s.Engine.NATSCreds}, {"nats-system-creds", s.Engine.SystemCreds},
		{"tls-key", s.HTTPS.Key}, {PasswordFileFlag, s.PasswordFile},
	}
	if s.from.of(bootstrapKeysFlag).kind == byFile {
		files = append(files, struct{ flag, path string }{bootstrapKeysFlag, s.Config})
	}
	for _, f := range files {
		if f.path == "" {
			continue
		}
		info, err := os.Stat(f.path)
		if err != nil || !info.Mode().IsRegular() || info.Mode()&0o026 == 0 {
			continue
		}
		all = append(all, fmt.Sprintf("%s: other users can read or change %s (mode %04o): chmod 600 it", s.Where(f.flag), f.path, info.Mode().Perm()))
	}
	return all
}
