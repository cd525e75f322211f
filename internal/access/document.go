package access

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"weir"
	"weir/internal/engine"
)

// The kinds of documents that this package stores: the part before the slash in their keys. Reports
// that count the documents of a store by kind count projects and keys under these.
const (
	ProjectKind = "project"
	KeyKind     = "key"
)

const (
	// The digest of the project's name follows, in hex. So the store keeps names unique.
	projectPrefix = ProjectKind + "/"
	// The digest of the key follows, in hex. So the store keeps keys unique.
	keyPrefix = KeyKind + "/"
)

// IsProjectDocument reports whether the document under this key of the store is a project's. It
// looks at the key alone, not at whether the value can be read.
func IsProjectDocument(key string) bool { return strings.HasPrefix(key, projectPrefix) }

// IsKeyDocument reports whether the document under this key of the store is an API key's. It looks
// at the key alone, not at whether the value can be read. A copy of a store should write these
// documents last: until they exist, no client can publish to a half-copied store.
func IsKeyDocument(key string) bool { return strings.HasPrefix(key, keyPrefix) }

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

// readKey decodes and validates a key document, whose key in the store holds the digest. Every
// reader of key documents uses it, so that a server, a check and a repair agree on which documents
// are keys.
func readKey(doc engine.Document) (d digest, k Key, err error) {
	d, err = digestIn(doc.Key)
	if err == nil {
		err = json.Unmarshal(doc.Value, &k)
	}
	switch {
	case err != nil:
	case k.ID == "":
		err = errors.New("id is missing")
	case k.Project == "":
		err = errors.New("project is missing")
	}
	if err != nil {
		return digest{}, Key{}, fmt.Errorf("not a key document: %w", err)
	}
	return d, k, nil
}
