package manual

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
)

// TestDescription checks that the description is a valid OpenAPI document, including its examples, and
// that the reference page shows all its operations except those for OPTIONS.
func TestDescription(t *testing.T) {
	d, err := readDescription()
	if err != nil {
		t.Fatal(err)
	}
	doc, err := openapi3.NewLoader().LoadFromData(d.json)
	if err != nil {
		t.Fatal(err)
	}
	if err := doc.Validate(context.Background()); err != nil {
		t.Fatal(err)
	}
	page := ask(sample(t), "GET", "/docs/reference").Body.String()
	for path, item := range doc.Paths.Map() {
		for method, op := range item.Operations() {
			if method != http.MethodOptions && !strings.Contains(page, `id="`+op.OperationID+`"`) {
				t.Errorf("the reference page has no section about %s %s", method, path)
			}
		}
	}
}
