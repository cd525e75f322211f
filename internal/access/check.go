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
