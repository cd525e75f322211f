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
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/gorillamux"
)

// description is the service's own account of its interface: /openapi.json. Every answer is held to it, and every request
// that was not refused, so that it cannot say anything else than what the service does.
type description struct {
	doc    *openapi3.T
	router routers.Router
}

// describe asks a service for its description.
func describe(t testing.TB, client *http.Client, base string) *description {
	t.Helper()
	resp, err := client.Get(base + "/openapi.json")
	if err != nil {
		t.Fatalf("ask for the description of the interface: %v", err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "application/json" {
		t.Fatalf("/openapi.json: %s of type %s (%v)", resp.Status, resp.Header.Get("Content-Type"), err)
	}
	d := &description{}
	if d.doc, err = openapi3.NewLoader().LoadFromData(text); err == nil {
		err = d.doc.Validate(context.Background())
	}
	if err != nil {
		t.Fatalf("/openapi.json: %v", err)
	}
	if !strings.HasPrefix(d.doc.OpenAPI, "3.1.") {
		t.Errorf("/openapi.json is of version %s, want 3.1", d.doc.OpenAPI)
	}
	if d.router, err = gorillamux.NewRouter(d.doc); err != nil {
		t.Fatalf("/openapi.json: %v", err)
	}
	return d
}

var validation = &openapi3filter.Options{
	IncludeResponseStatus: true, AuthenticationFunc: openapi3filter.NoopAuthenticationFunc, SkipSettingDefaults: true,
}

// large is where a body is not looked into any more: events may be anything, and the validator is slow.
const large = 256 << 10

// fault compares an answer with the description. Of a subscription there is no body: its events are compared one by one.
func (d *description) fault(resp *http.Response, body []byte) error {
	req := resp.Request.Clone(context.Background())
	head := req.Method == http.MethodHead
	if head {
		req.Method = http.MethodGet
	}
	req.Body = nil
	req.URL.RawPath = "" // the router compares parts as they are spelled
	route, params, err := d.router.FindRoute(req)
	if err != nil {
		return d.outside(resp, body, err)
	}
	in := &openapi3filter.RequestValidationInput{Request: req, PathParams: params, Route: route, Options: validation}
	if resp.StatusCode < 300 {
		if err := requestFault(in, resp); err != nil {
			return fmt.Errorf("the request was taken, and is not as described: %w", err)
		}
	}
	if resp.StatusCode == http.StatusMethodNotAllowed || resp.StatusCode == http.StatusNotFound && noRoute(body) {
		return d.outside(resp, body, errors.New("refused"))
	}
	if r := route.Operation.Responses.Status(resp.StatusCode); r != nil {
		if err := undescribed(resp.Header, r.Value.Headers); err != nil {
			return err
		}
	}
	options := *validation
	options.ExcludeResponseBody = body == nil || head || len(body) > large
	return openapi3filter.ValidateResponse(context.Background(), &openapi3filter.ResponseValidationInput{
		RequestValidationInput: in, Status: resp.StatusCode, Header: resp.Header, Body: io.NopCloser(bytes.NewReader(body)), Options: &options,
	})
}

// requestFault compares a request that was taken. What the service does not look at is not compared: the body of a duplicate,
// and the cursor of a request that is no subscription.
func requestFault(in *openapi3filter.RequestValidationInput, resp *http.Response) error {
	sent, options := resp.Request, *validation
	options.ExcludeRequestQueryParams = in.Route.Operation.OperationID == "showStream" && !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream")
	empty := sent.ContentLength == 0 // which a raw batch may be, and the validator does not tell it from none
	options.ExcludeRequestBody = sent.GetBody == nil || sent.ContentLength > large || empty || resp.StatusCode == http.StatusOK
	if !options.ExcludeRequestBody {
		body, err := sent.GetBody()
		if err != nil {
			return err
		}
		in.Request.Body = body
	}
	in.Options = &options
	return openapi3filter.ValidateRequest(context.Background(), in)
}

// outside is for what belongs to no operation: a path or a method that there is not, which is refused like everything else.
func (d *description) outside(resp *http.Response, body []byte, why error) error {
	if resp.StatusCode < 400 {
		return fmt.Errorf("%d to what is not described: %w", resp.StatusCode, why)
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
	default: // refused before it was looked at where it leads
		return d.fits(d.doc.Components.Schemas["Error"].Value, body)
	}
	r := d.doc.Components.Responses[name]
	if r == nil {
		return fmt.Errorf("there is no response %s", name)
	}
	for field, h := range r.Value.Headers {
		if h.Value.Required && resp.Header.Get(field) == "" {
			return fmt.Errorf("%s is missing", field)
		}
	}
	if err := undescribed(resp.Header, r.Value.Headers); err != nil {
		return err
	}
	return d.fits(r.Value.Content["application/json"].Schema.Value, body)
}

func noRoute(body []byte) bool { return bytes.Contains(body, []byte(`"code":"not_found"`)) }

// ofHTTP are the header fields that belong to HTTP itself, and not to the interface.
var ofHTTP = []string{"Alt-Svc", "Connection", "Content-Length", "Content-Type", "Date", "Trailer"}

// undescribed finds a header field that the description does not know.
func undescribed(got http.Header, described openapi3.Headers) error {
	for name := range got {
		if described[strings.ToLower(name)] == nil && !slices.Contains(ofHTTP, name) {
			return fmt.Errorf("the header field %s is not described", strings.ToLower(name))
		}
	}
	return nil
}

// event compares the data of a subscription's event with its schema.
func (d *description) event(e Event) error {
	content := d.doc.Paths.Find("/v1/streams/{id}").Get.Responses.Status(200).Value.Content["text/event-stream"]
	if content == nil {
		return errors.New("no subscription is described")
	}
	known, _ := content.Extensions["x-events"].(map[string]any)
	ref, ok := known[e.Name].(map[string]any)
	if !ok {
		return fmt.Errorf("no event %q is described", e.Name)
	}
	if len(e.Data) > large {
		return nil
	}
	name, _ := ref["$ref"].(string)
	schema := d.doc.Components.Schemas[strings.TrimPrefix(name, "#/components/schemas/")]
	if schema == nil {
		return fmt.Errorf("the event %q leads to %q", e.Name, name)
	}
	return d.fits(schema.Value, []byte(e.Data))
}

func (d *description) fits(schema *openapi3.Schema, body []byte) error {
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.UseNumber()
	var v any
	if err := decoder.Decode(&v); err != nil {
		return err
	}
	return schema.VisitJSON(v, openapi3.EnableJSONSchema2020())
}
