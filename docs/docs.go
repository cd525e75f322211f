// Package docs embeds the documents that the server serves: the Markdown pages of the manual with
// their images, and the OpenAPI description of the HTTP API. It is a Go package so that they become
// part of the binary.
package docs

import "embed"

// Files holds the documents under their names in this directory.
//
//go:embed *.md images manual openapi.yaml
var Files embed.FS
