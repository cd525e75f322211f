package access

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"weir"
	"weir/internal/engine"
)

// CheckDocument says whether a document of the store can be read as the project or key that its key promises. Others are
// none of ours, and good.
func CheckDocument(doc engine.Document) error {
	switch {
	case strings.HasPrefix(doc.Key, projectPrefix):
		var p weir.Project
		if err := json.Unmarshal(doc.Value, &p); err != nil {
			return fmt.Errorf("it is no project: %w", err)
		}
		if p.ID == "" || p.Name == "" {
			return errors.New("it is no project: something is missing")
		}
	case strings.HasPrefix(doc.Key, keyPrefix):
		var k Key
		if _, err := digestIn(doc.Key); err != nil {
			return fmt.Errorf("it is no key: %w", err)
		}
		if err := json.Unmarshal(doc.Value, &k); err != nil {
			return fmt.Errorf("it is no key: %w", err)
		}
		if k.ID == "" || k.Project == "" {
			return errors.New("it is no key: something is missing")
		}
	}
	return nil
}

// Suspend revokes the key of a document that nobody can tell the newest state of: it may have been revoked. The value is
// that of the document from here on; nil where there is nothing to revoke. It needs no Access: it is for stores that nobody
// serves.
func Suspend(doc engine.Document, now weir.Time) (value []byte, key Key, err error) {
	if !strings.HasPrefix(doc.Key, keyPrefix) {
		return nil, key, nil
	}
	if err := json.Unmarshal(doc.Value, &key); err != nil {
		return nil, key, fmt.Errorf("it is no key: %w", err)
	}
	if key.RevokedAt != nil {
		return nil, key, nil
	}
	key.RevokedAt = &now
	value, err = json.Marshal(key)
	return value, key, err
}
