package access

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"weir"
	"weir/internal/engine"
)

// The kinds of documents that this package stores. The kind of a document is the part of its name
// before the slash. Reports that count the documents of a store by kind use these words.
const (
	ProjectKind = "project"
	KeyKind     = "key"
	TokenKind   = "token"
)

const (
	// The name of a project document is this prefix and a digest of the project's name, in hex.
	// Document names are unique in the store, so project names are unique too.
	projectPrefix = ProjectKind + "/"
	// The name of a key document is this prefix and the digest of the API key, in hex. So the store
	// has at most one document for an API key.
	keyPrefix = KeyKind + "/"
	// The name of a token document is this prefix and the digest of the management token, in hex.
	tokenDocuments = TokenKind + "/"
)

// IsProjectDocument reports whether a document with this name in the store holds a project. It
// looks at the name only, not at the value.
func IsProjectDocument(key string) bool { return strings.HasPrefix(key, projectPrefix) }

// IsKeyDocument reports whether a document with this name in the store holds the record of an API
// key or a management token. It looks at the name only, not at the value. Code that copies a store
// should write these documents last: until they exist, no client can change a half-copied store.
func IsKeyDocument(key string) bool {
	return strings.HasPrefix(key, keyPrefix) || strings.HasPrefix(key, tokenDocuments)
}

// readProject decodes and validates a project document. Every reader of project documents uses it,
// so that a server, a check and a repair agree on which documents are projects.
func readProject(doc engine.Document) (p weir.Project, err error) {
	err = json.Unmarshal(doc.Value, &p)
	switch {
	case err != nil:
	case p.ID == "":
		err = errors.New("id is missing")
	case p.Name == "":
		err = errors.New("name is missing")
	}
	if err != nil {
		return weir.Project{}, fmt.Errorf("not a project document: %w", err)
	}
	return p, nil
}

// readKey decodes and validates the document of a key or a management token. The digest that it
// returns comes from the document's name. Every reader of these documents uses it, so that a
// server, a check and a repair agree on which documents are keys.
func readKey(doc engine.Document) (d digest, k Key, err error) {
	d, err = digestIn(doc.Key)
	if err == nil {
		err = json.Unmarshal(doc.Value, &k)
	}
	switch {
	case err != nil:
	case k.ID == "":
		err = errors.New("id is missing")
	case strings.HasPrefix(doc.Key, tokenDocuments) != (k.Kind == Management):
		err = errors.New("the kind does not belong to a document of this name")
	case k.Project == "" && k.Kind != Management:
		err = errors.New("project is missing")
	}
	if err != nil {
		return digest{}, Key{}, fmt.Errorf("not a key document: %w", err)
	}
	return d, k, nil
}
