package settings

import (
	"fmt"
	"os"
)

// SecretsExposed returns a sentence for every file with a secret that others than its owner and group
// can read, or others than its owner can change. The sentence names the setting, the file and its
// mode. Files that cannot be examined are left to their readers.
//
// These are warnings, because containers mount secrets with modes that the operator cannot choose.
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
