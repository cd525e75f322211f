package api

import (
	"net/http"
	"net/url"
	"testing"

	"weir"
	"weir/internal/hub"
)

func FuzzLastEventID(f *testing.F) {
	for _, s := range []string{"", "0", "1", "-1", "9007199254740991", "9007199254740992", "01", "head"} {
		f.Add(s, "cursor="+s)
	}
	f.Fuzz(func(t *testing.T, last, query string) {
		c := &call{r: &http.Request{Header: http.Header{"Last-Event-Id": {last}}, URL: &url.URL{RawQuery: query}}}
		from, err := c.start()
		if err != nil {
			if code(err) != weir.InvalidRequest {
				t.Fatal(err)
			}
			return
		}
		if seq, err := weir.ParseSeq(last); last != "" && (err != nil || from != hub.After(seq)) {
			t.Fatalf("Last-Event-ID %q parses as %+v", last, from)
		}
	})
}
