package access

import (
	"encoding/json"

	"weir"
	"weir/internal/engine"
)

// CheckDocument says whether a document of the store can be read as the project or key that its key promises. Others are
// none of ours, and good.
func CheckDocument(doc engine.Document) (err error) {
	switch {
	case IsProjectDocument(doc.Key):
		_, err = readProject(doc)
	case IsKeyDocument(doc.Key):
		_, _, err = readKey(doc)
	}
	return err
}

// Suspend revokes the key of a document that nobody can tell the newest state of: it may have been revoked. The value is
// that of the document from here on; nil where there is nothing to revoke. It needs no Access: it is for stores that nobody
// serves.
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
