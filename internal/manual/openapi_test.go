package manual

import (
	"context"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
)

// TestDescription checks that the description is a valid OpenAPI document, including its examples.
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
}
