package main

import (
	"debug/buildinfo"
	"encoding/json"
	"os"
	"path/filepath"
	"runtime/debug"
)

type component struct {
	Type    string `json:"type"`
	Name    string `json:"name"`
	Version string `json:"version"`
	PURL    string `json:"purl"`
}

// printModules prints the modules that a Go program was built from, as a software bill of materials
// in the CycloneDX format. It reads them from the program itself, so the list cannot differ from
// what the program contains.
func printModules(program, version string) error {
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return err
	}
	modules := append([]*debug.Module{{Path: "std", Version: info.GoVersion[len("go"):]}}, info.Deps...)
	components := make([]component, 0, len(modules))
	for _, m := range modules {
		if m.Replace != nil {
			m = m.Replace
		}
		components = append(components, component{"library", m.Path, m.Version, "pkg:golang/" + m.Path + "@" + m.Version})
	}
	name := filepath.Base(program)
	out := json.NewEncoder(os.Stdout)
	out.SetIndent("", "  ")
	return out.Encode(map[string]any{
		"bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1,
		"metadata": map[string]any{
			"component": component{"application", name, version, "pkg:golang/" + info.Main.Path + "@" + version},
		},
		"components": components,
	})
}
