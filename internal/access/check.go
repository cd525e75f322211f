package access

import (
	"encoding/json"

	"weir"
	"weir/internal/engine"
)

// CheckDocument reports whether a document of the store can be read as a project or key, if its key
// says that it is one. It accepts all other documents.
func CheckDocument(doc engine.Document) (err error) {
	switch {
	case IsProjectDocument(doc.Key):
		_, err = readProject(doc)
	case IsKeyDocument(doc.Key):
		_, _, err = readKey(doc)
	}
	return err
}

// Suspend revokes the key of a document whose newest revision was lost, because that revision may
// have been a revocation. It returns the new value of the document, or nil if there is nothing to
// revoke. It needs no Access: it is for stores that no server has open.
func Suspend(doc engine.Document, now weir.Time) (value []byte, key Key, err error) {
	if !IsKeyDocument(doc.Key) {
		return nil, key, nil
	}
	_, key, err = readKey(doc)
	if err != nil {
		return nil, key, err
	}
	if key.RevokedAt != nil {
		return nil, key, nil
	}
	key.RevokedAt = &now
	value, err = json.Marshal(key)
	return value, key, err
}
