package contract

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/gorillamux"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

// description is the service's description of its own interface, /openapi.json. The suite validates
// every response and every accepted request against it. So a service whose behaviour differs from
// its description fails the suite.
type description struct {
	doc    *openapi3.T
	router routers.Router

	mu       sync.Mutex
	compiled map[*openapi3.Schema]*jsonschema.Schema
}

// describe loads the description of a service.
func describe(t testing.TB, client *http.Client, base string) *description {
	t.Helper()
	resp, err := client.Get(base + "/openapi.json")
	if err != nil {
		t.Fatalf("get /openapi.json: %v", err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "application/json" {
		t.Fatalf("get /openapi.json: got %s of type %s (%v)", resp.Status, resp.Header.Get("Content-Type"), err)
	}
	d := &description{compiled: map[*openapi3.Schema]*jsonschema.Schema{}}
	if d.doc, err = openapi3.NewLoader().LoadFromData(text); err == nil {
		err = d.doc.Validate(context.Background())
	}
	if err != nil {
		t.Fatalf("/openapi.json: %v", err)
	}
	if !strings.HasPrefix(d.doc.OpenAPI, "3.1.") {
		t.Errorf("/openapi.json has version %s, want 3.1", d.doc.OpenAPI)
	}
	if d.router, err = gorillamux.NewRouter(d.doc); err != nil {
		t.Fatalf("/openapi.json: %v", err)
	}
	return d
}

// large is the size in bytes above which the suite does not validate a body. Almost all of a large
// body is events, which may be any JSON, so validating it would take long and find nothing.
const large = 256 << 10

// fault returns an error if a response differs from the description. For a subscription, body is
// nil: the method event validates its events one by one.
func (d *description) fault(resp *http.Response, body []byte) error {
	req := resp.Request.Clone(context.Background())
	head := req.Method == http.MethodHead
	if head {
		req.Method = http.MethodGet
	}
	req.URL.RawPath = "" // so that the router matches Path, in which escapes are decoded
	route, params, err := d.router.FindRoute(req)
	if err != nil {
		return d.outside(resp, body, err)
	}
	if resp.StatusCode < 300 {
		if err := d.requestFault(resp, route, params); err != nil {
			return fmt.Errorf("the service accepted a request that does not match the description: %w", err)
		}
	}
	if resp.StatusCode == http.StatusMethodNotAllowed || resp.StatusCode == http.StatusNotFound && noRoute(body) {
		return d.outside(resp, body, errors.New("refused"))
	}
	described := route.Operation.Responses.Status(resp.StatusCode)
	if described == nil {
		return errors.New("the description does not list this status")
	}
	if err := d.headerFault(resp.Header, described.Value.Headers); err != nil {
		return err
	}
	if body == nil || head || len(body) > large {
		return nil
	}
	return d.bodyFault(described.Value.Content, resp.Header.Get("Content-Type"), body)
}

// requestFault returns an error if an accepted request differs from the description. It skips the
// parts that the service ignores: the body of a duplicate, and the cursor of a request that is not
// a subscription.
func (d *description) requestFault(resp *http.Response, route *routers.Route, path map[string]string) error {
	sent, op := resp.Request, route.Operation
	subscription := strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream")
	query := sent.URL.Query()
	for _, ref := range slices.Concat(route.PathItem.Parameters, op.Parameters) {
		p, values := ref.Value, []string(nil)
		switch {
		case p.In == "query" && op.OperationID == "showStream" && !subscription:
			continue
		case p.In == "query":
			values = query[p.Name]
		case p.In == "header":
			values = sent.Header.Values(p.Name)
		default:
			values = []string{path[p.Name]}
		}
		if err := d.valueFault(p.Name, p.Schema, values, p.Required); err != nil {
			return err
		}
	}
	empty := sent.ContentLength == 0 // a raw batch may be empty
	if op.RequestBody == nil || sent.GetBody == nil || empty || sent.ContentLength > large || resp.StatusCode == http.StatusOK {
		return nil
	}
	r, err := sent.GetBody()
	if err != nil {
		return err
	}
	body, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	return d.bodyFault(op.RequestBody.Value.Content, sent.Header.Get("Content-Type"), body)
}

// bodyFault returns an error if a body differs from the description of its content type. For raw
// batches it checks the content type only.
func (d *description) bodyFault(described openapi3.Content, contentType string, body []byte) error {
	if len(described) == 0 && len(body) == 0 {
		return nil
	}
	media := described.Get(contentType)
	if media == nil {
		return fmt.Errorf("the description has no body of type %q", contentType)
	}
	if media.Schema == nil || !strings.HasPrefix(contentType, "application/json") {
		return nil
	}
	return d.fits(media.Schema.Value, body)
}

// valueFault returns an error if the values of a parameter or a header field differ from the
// description.
func (d *description) valueFault(name string, ref *openapi3.SchemaRef, values []string, required bool) error {
	if required && len(values) == 0 {
		return fmt.Errorf("%s is missing", name)
	}
	for _, text := range values {
		var v any = text
		if ref.Value.Type.Is("integer") {
			v = json.Number(text)
			if _, err := strconv.ParseInt(text, 10, 64); err != nil {
				return fmt.Errorf("%s is not an integer: %w", name, err)
			}
		}
		schema, err := d.compile(ref.Value)
		if err != nil {
			return err
		}
		if err := schema.Validate(v); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// outside validates the response to a request whose path or method is unknown. Such a request
// belongs to no operation of the description, and must get an error.
func (d *description) outside(resp *http.Response, body []byte, why error) error {
	if resp.StatusCode < 400 {
		return fmt.Errorf("status %d for a request that is not in the description: %w", resp.StatusCode, why)
	}
	if resp.Request.Method == http.MethodHead {
		return nil
	}
	name := ""
	switch {
	case resp.StatusCode == http.StatusMethodNotAllowed:
		name = "NoMethod"
	case resp.StatusCode == http.StatusNotFound && noRoute(body):
		name = "NoRoute"
	default: // refused before the server looked for a route
		return d.fits(d.doc.Components.Schemas["Error"].Value, body)
	}
	r := d.doc.Components.Responses[name]
	if r == nil {
		return fmt.Errorf("the description has no response %s", name)
	}
	if err := d.headerFault(resp.Header, r.Value.Headers); err != nil {
		return err
	}
	return d.fits(r.Value.Content["application/json"].Schema.Value, body)
}

func noRoute(body []byte) bool { return bytes.Contains(body, []byte(`"code":"not_found"`)) }

// ofHTTP are the header fields that belong to HTTP itself, not to the interface.
var ofHTTP = []string{"Alt-Svc", "Connection", "Content-Length", "Content-Type", "Date", "Trailer"}

// headerFault returns an error if header fields differ from the description. A field that the
// description does not mention counts as a difference.
func (d *description) headerFault(got http.Header, described openapi3.Headers) error {
	for name := range got {
		if described[strings.ToLower(name)] == nil && !slices.Contains(ofHTTP, name) {
			return fmt.Errorf("the description has no header field %s", strings.ToLower(name))
		}
	}
	for name, h := range described {
		if err := d.valueFault(name, h.Value.Schema, got.Values(name), h.Value.Required); err != nil {
			return err
		}
	}
	return nil
}

// event validates the data of a subscription's event against its schema.
func (d *description) event(e Event) error {
	content := d.doc.Paths.Find("/v1/streams/{id}").Get.Responses.Status(200).Value.Content["text/event-stream"]
	if content == nil {
		return errors.New("the description has no subscription")
	}
	known, _ := content.Extensions["x-events"].(map[string]any)
	ref, ok := known[e.Name].(map[string]any)
	if !ok {
		return fmt.Errorf("the description has no event %q", e.Name)
	}
	if len(e.Data) > large {
		return nil
	}
	name, _ := ref["$ref"].(string)
	schema := d.doc.Components.Schemas[strings.TrimPrefix(name, "#/components/schemas/")]
	if schema == nil {
		return fmt.Errorf("the event %q refers to %q, which is not a schema", e.Name, name)
	}
	return d.fits(schema.Value, []byte(e.Data))
}

// fits validates a JSON body against a schema.
func (d *description) fits(s *openapi3.Schema, body []byte) error {
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(body))
	if err != nil {
		return err
	}
	schema, err := d.compile(s)
	if err != nil {
		return err
	}
	return schema.Validate(v)
}

// compile compiles a schema once and keeps the result. Compiling a schema takes longer than all the
// validations that use it.
func (d *description) compile(s *openapi3.Schema) (*jsonschema.Schema, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if ready := d.compiled[s]; ready != nil {
		return ready, nil
	}
	text, err := json.Marshal(map[string]any{"schema": s, "components": d.doc.Components}) // the schema may refer to components
	if err != nil {
		return nil, err
	}
	resource, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	const at = "https://weir.invalid/description.json"
	compiler := jsonschema.NewCompiler()
	compiler.AssertFormat()
	if err := compiler.AddResource(at, resource); err != nil {
		return nil, err
	}
	ready, err := compiler.Compile(at + "#/schema")
	if err == nil {
		d.compiled[s] = ready
	}
	return ready, err
}
