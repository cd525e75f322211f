package manual

import (
	"bytes"
	"encoding/json"
	"fmt"
	"html/template"
	"slices"
	"strconv"
	"strings"
)

// The data for the template of the HTTP reference.
type (
	referencePage struct {
		Description, Keys, KeyForm string
		Universal, Preflight       []field
		Operations                 []operation
		Outside                    []answer
		Schemas                    []schema
	}
	operation struct {
		ID, Method, Path, Summary, Description string
		Public                                 bool
		Parameters                             []field
		BodyDescription                        string
		Bodies                                 []body
		Answers                                []answer
	}
	field struct {
		Name, In, Description string
		Schema                string // name of the schema, if the field refers to one
		Type                  template.HTML
		Required              bool
	}
	body struct{ Type, Schema, Example string }

	answer struct {
		Status      string
		Description string
		Headers     []string // in addition to the headers of every response
		Codes       []string
		Bodies      []body
	}
	schema struct {
		Name, Description string
		Fields            []field
		OneOf             []string
	}
)

// methods lists the methods that the page shows, in this order.
var methods = []string{"get", "post", "patch", "delete"}

// reference builds the page of the HTTP reference.
func reference(d *description) (content, error) {
	components := d.object.object("components")
	key := components.object("securitySchemes").object("key")
	page := referencePage{Description: d.object.object("info").text("description"), Keys: key.text("description"), KeyForm: key.text("bearerFormat")}
	// Every response has the headers of /v1/health. They are shown once, and left out everywhere else.
	universal := d.object.object("paths").object("/v1/health").object("get").object("responses").object("200").object("headers")
	page.Universal = d.headers(universal, nil)
	page.Preflight = d.headers(components.object("responses").object("Preflight").object("headers"), universal)
	sections := []section{{"authentication", "Authentication"}, {"header-fields", "Headers of every response"}}
	paths := d.object.object("paths")
	for _, path := range paths.names {
		item := paths.object(path)
		for _, method := range methods {
			if _, ok := item.members[method]; !ok {
				continue
			}
			op := d.operation(item.object(method), method, path, item.list("parameters"), universal)
			page.Operations = append(page.Operations, op)
			sections = append(sections, section{op.ID, op.Summary})
		}
	}
	for status, name := range map[string]string{"404": "NoRoute", "405": "NoMethod"} {
		page.Outside = append(page.Outside, d.answer(status, components.object("responses").object(name), universal))
	}
	slices.SortFunc(page.Outside, func(a, b answer) int { return strings.Compare(a.Status, b.Status) })
	schemas := components.object("schemas")
	for _, name := range schemas.names {
		page.Schemas = append(page.Schemas, d.schema(name, schemas.object(name)))
	}
	sections = append(sections, section{"preflight", "Preflight"}, section{"outside", "Unknown paths and methods"}, section{"objects", "Objects"})
	return table("reference", "HTTP reference", page, sections)
}

func (d *description) operation(o *object, method, path string, shared []any, universal *object) operation {
	op := operation{ID: o.text("operationId"), Method: strings.ToUpper(method), Path: path, Summary: o.text("summary"), Description: o.text("description")}
	if security, ok := o.members["security"].([]any); ok && len(security) == 0 {
		op.Public = true
	}
	for _, p := range append(slices.Clone(shared), o.list("parameters")...) {
		parameter, _ := d.follow(p.(*object))
		f := d.field(parameter.text("name"), parameter.object("schema"))
		f.In, f.Description = parameter.text("in"), parameter.text("description")
		f.Required, _ = parameter.members["required"].(bool)
		op.Parameters = append(op.Parameters, f)
	}
	request, _ := d.follow(o.object("requestBody"))
	op.BodyDescription = request.text("description")
	op.Bodies = d.bodies(request.object("content"))
	responses := o.object("responses")
	for _, status := range responses.names {
		r, _ := d.follow(responses.object(status))
		op.Answers = append(op.Answers, d.answer(status, r, universal))
	}
	return op
}

func (d *description) answer(status string, r, universal *object) answer {
	a := answer{Status: status, Description: r.text("description")}
	headers := r.object("headers")
	for _, name := range headers.names {
		if _, ok := universal.members[name]; !ok {
			a.Headers = append(a.Headers, name)
		}
	}
	a.Codes = codes(r)
	if a.Codes == nil {
		a.Bodies = d.bodies(r.object("content"))
	}
	return a
}

// codes returns the error codes that a response can have.
func codes(response *object) []string {
	var all []string
	for _, part := range response.object("content").object("application/json").object("schema").list("allOf") {
		for _, c := range part.(*object).object("properties").object("error").object("properties").object("code").list("enum") {
			all = append(all, c.(string))
		}
	}
	return all
}

func (d *description) bodies(content *object) []body {
	var all []body
	for _, name := range content.names {
		media := content.object(name)
		b := body{Type: name, Example: example(media.members["example"])}
		_, b.Schema = d.follow(media.object("schema"))
		if examples := media.object("examples"); len(examples.names) > 0 {
			b.Example = example(examples.object(examples.names[len(examples.names)-1]).members["value"])
		}
		all = append(all, b)
	}
	return all
}

// example formats an example: text as it is, other values as indented JSON.
func example(v any) string {
	if v == nil {
		return ""
	}
	if text, ok := v.(string); ok {
		return text
	}
	b, err := json.Marshal(v)
	var out bytes.Buffer
	if err != nil || json.Indent(&out, b, "", "  ") != nil {
		return ""
	}
	return out.String()
}

// headers returns the headers of a response, except those in the parameter omitted.
func (d *description) headers(all, omitted *object) []field {
	var fields []field
	for _, name := range all.names {
		if omitted != nil && omitted.members[name] != nil {
			continue
		}
		h, _ := d.follow(all.object(name))
		f := d.field(name, h.object("schema"))
		f.Description = h.text("description")
		fields = append(fields, f)
	}
	return fields
}

func (d *description) schema(name string, o *object) schema {
	s := schema{Name: name, Description: o.text("description")}
	if t := describeType(o); t != "object" && o.text("type") != "" {
		s.Description += "\n\nType: " + t + "."
	}
	s.Fields = d.fields("", o)
	for _, one := range o.list("oneOf") {
		_, name := d.follow(one.(*object))
		s.OneOf = append(s.OneOf, name)
	}
	return s
}

// fields returns the members of an object, including those of nested objects.
func (d *description) fields(prefix string, o *object) []field {
	var all []field
	properties := o.object("properties")
	for _, name := range properties.names {
		p := properties.object(name)
		f := d.field(prefix+name, p)
		f.Required = slices.Contains(o.list("required"), any(name))
		all = append(all, f)
		all = append(all, d.fields(prefix+name+".", p)...)
	}
	return all
}

func (d *description) field(name string, s *object) field {
	target, ref := d.follow(s)
	f := field{Name: name, Schema: ref, Description: target.text("description")}
	if ref == "" {
		f.Type = inline(describeType(target))
		if item, ref := d.follow(target.object("items")); ref != "" && item != nil {
			f.Type = template.HTML(fmt.Sprintf(`array of <a href="#%[1]s">%[1]s</a>`, ref))
		}
	}
	return f
}

// describeType describes in Markdown which values a schema allows.
func describeType(s *object) string {
	kind := s.text("type")
	if several := s.list("type"); several != nil {
		var names []string
		for _, n := range several {
			names = append(names, fmt.Sprint(n))
		}
		kind = strings.Join(names, " or ")
	}
	var rest []string
	if enum := s.list("enum"); enum != nil {
		var values []string
		for _, v := range enum {
			values = append(values, fmt.Sprintf("`%v`", v))
		}
		rest = append(rest, strings.Join(values, ", "))
	}
	if v, ok := s.members["const"]; ok {
		rest = append(rest, fmt.Sprintf("always `%v`", v))
	}
	low, high := number(s.members["minimum"]), number(s.members["maximum"])
	switch {
	case low != "" && high != "":
		rest = append(rest, low+" to "+high)
	case low != "" && low != "0":
		rest = append(rest, "at least "+low)
	}
	if low, high := number(s.members["minLength"]), number(s.members["maxLength"]); low != "" && high != "" {
		rest = append(rest, low+" to "+high+" characters")
	}
	if p := s.text("pattern"); p != "" {
		rest = append(rest, "`"+p+"`")
	}
	if v, ok := s.members["default"]; ok {
		rest = append(rest, fmt.Sprintf("default `%v`", v))
	}
	if len(rest) == 0 {
		return kind
	}
	return kind + ": " + strings.Join(rest, "; ")
}

func number(v any) string {
	if n, ok := v.(int); ok {
		return strconv.Itoa(n)
	}
	return ""
}
