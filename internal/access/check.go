package access

import (
	"encoding/json"

	"weir"
	"weir/internal/engine"
)

// CheckDocument returns an error if a document has the name of a project, key or token document,
// but its value is not valid. It accepts documents with other names.
func CheckDocument(doc engine.Document) (err error) {
	switch {
	case IsProjectDocument(doc.Key):
		_, err = readProject(doc)
	case IsKeyDocument(doc.Key):
		_, _, err = readKey(doc)
	}
	return err
}

// Suspend revokes the API key or management token in a document whose newest revision was lost,
// because that revision may have been a revocation. It returns the value that the caller must write
// to the document, or nil if there is nothing to revoke. It needs no Access, because it repairs
// stores that no server has open.
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
