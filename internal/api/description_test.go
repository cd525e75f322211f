package api

import (
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"weir"
)

// described is the part of docs/openapi.yaml that the tests below compare with the code.
type described struct {
	Paths      map[string]map[string]yaml.Node
	Components struct {
		Responses map[string]struct {
			Content map[string]struct {
				Schema struct {
					AllOf []struct {
						Properties struct {
							Error struct {
								Properties struct {
									Type struct {
										Const string
										Enum  []string
									}
									Code struct{ Enum []string }
								}
							}
						} `yaml:"properties"`
					} `yaml:"allOf"`
				}
			}
		}
		Schemas map[string]struct {
			Properties map[string]struct {
				Properties map[string]struct{ Enum []string }
			}
		}
	}
}

func readDescription(t *testing.T) described {
	t.Helper()
	text, err := os.ReadFile("../../docs/openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var d described
	if err := yaml.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	return d
}

// The OpenAPI description has exactly the routes and methods of the API.
func TestDescribedRoutes(t *testing.T) {
	d := readDescription(t)
	for kind, e := range endpoints {
		path := routeKind(kind).String()
		if e.allow == nil {
			continue
		}
		item, ok := d.Paths[path]
		if !ok {
			t.Errorf("docs/openapi.yaml does not describe %s", path)
			continue
		}
		delete(d.Paths, path)
		var want []string
		for _, m := range strings.Split(e.allow[0], ", ") {
			if m != http.MethodHead { // the document describes HEAD once, for all paths
				want = append(want, strings.ToLower(m))
			}
		}
		var got []string
		for name := range item {
			if name != "parameters" {
				got = append(got, name)
			}
		}
		slices.Sort(want)
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("%s: the description has the methods %v, the API has %v", path, got, want)
		}
	}
	for path := range d.Paths {
		t.Errorf("%s is described, but the API has no such route", path)
	}
}

// The OpenAPI description has exactly the codes of the API, each with its type and status.
func TestDescribedCodes(t *testing.T) {
	d := readDescription(t)
	var all []string
	for _, f := range faults {
		all = append(all, string(f.code))
	}
	if got := d.Components.Schemas["Error"].Properties["error"].Properties["code"].Enum; !slices.Equal(got, all) {
		t.Errorf("the description lists the codes %v, the API has %v", got, all)
	}
	used := map[string]bool{}
	for name, r := range d.Components.Responses {
		for _, part := range r.Content["application/json"].Schema.AllOf {
			p := part.Properties.Error.Properties
			for _, c := range p.Code.Enum {
				used[c] = true
				if !slices.ContainsFunc(faults[:], func(f fault) bool {
					return string(f.code) == c && (f.kind == p.Type.Const || slices.Contains(p.Type.Enum, f.kind))
				}) {
					t.Errorf("%s: the code %s is unknown or has another type", name, c)
				}
			}
		}
	}
	for _, c := range all {
		if !used[c] {
			t.Errorf("no described response has the code %s", c)
		}
	}
	for path, item := range d.Paths {
		for method, operation := range item {
			var o struct {
				Responses map[int]struct {
					Ref string `yaml:"$ref"`
				}
			}
			if method == "parameters" || operation.Decode(&o) != nil {
				continue
			}
			for status, r := range o.Responses {
				shared := d.Components.Responses[strings.TrimPrefix(r.Ref, "#/components/responses/")]
				for _, part := range shared.Content["application/json"].Schema.AllOf {
					for _, c := range part.Properties.Error.Properties.Code.Enum {
						if f := faultOf[weir.Code(c)]; f == nil || f.status != status {
							t.Errorf("%s %s: the description gives the code %s the wrong status %d", method, path, c, status)
						}
					}
				}
			}
		}
	}
}
