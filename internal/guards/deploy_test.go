package guards

import (
	"regexp"
	"testing"
)

// deployed lists lines that files for operators must have, because the server's memory and its
// environment file hold keys.
var deployed = []struct {
	file string
	line *regexp.Regexp
	why  string
}{
	{"deploy/weir.service", regexp.MustCompile(`(?m)^LimitCORE=0$`), "a core dump would hold keys and payloads: set LimitCORE=0"},
	{"deploy/weir.service", regexp.MustCompile(`(?m)^UMask=0077$`), "other users could read the data: set UMask=0077"},
	{"deploy/nfpm.yaml", regexp.MustCompile(`(?m)^ *- \{.*dst: /etc/default/weir,.*mode: 0600\}`), "/etc/default/weir may hold keys: set its mode to 0600"},
}

// checkDeployed wants packages that keep keys from other users of the machine.
func checkDeployed(tr *tree) []string {
	var complaints []string
	for _, d := range deployed {
		if text, ok := tr.text[d.file]; ok && !d.line.Match(text) {
			complaints = append(complaints, d.file+": "+d.why)
		}
	}
	return complaints
}

func TestDeployed(t *testing.T) { passes(t, checkDeployed) }

func TestDeployedPlanted(t *testing.T) {
	catches(t, checkDeployed, []plant{
		{"core dumps", "-- deploy/weir.service --\n#LimitCORE=0\nUMask=0077\n", "set LimitCORE=0"},
		{"files that others can read", "-- deploy/weir.service --\nLimitCORE=0\nUMask=0022\n", "set UMask=0077"},
		{"an environment file that others can read", "-- deploy/nfpm.yaml --\n  - {src: a, dst: /etc/default/weir, file_info: {mode: 0644}}\n", "/etc/default/weir"},
		{"an environment file without a mode", "-- deploy/nfpm.yaml --\n  - {src: a, dst: /etc/default/weir}\n  - {src: b, dst: /b, file_info: {mode: 0600}}\n", "/etc/default/weir"},
		{"a private environment file", "-- deploy/nfpm.yaml --\n  - {src: a, dst: /etc/default/weir, file_info: {mode: 0600}}\n", ""},
	})
}
