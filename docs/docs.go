// Package docs holds the papers of the project that a server serves: the pages of the manual with their pictures, and the
// description of the HTTP interface. It is a package so that they can be part of the program.
package docs

import "embed"

// Files are the papers, under their names in this directory.
//
//go:embed *.md images manual openapi.yaml
var Files embed.FS
