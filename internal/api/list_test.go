package api_test

import (
	"encoding/json"
	"strings"
	"testing"

	"weir"
	"weir/internal/api"
)

// list returns the ids of all streams that a key can list. It reads the list in pages of 7 streams.
func (svc *testService) list(t *testing.T, key string) (ids []string) {
	t.Helper()
	header := []string{}
	if key != "" {
		header = append(header, "key: "+key)
	}
	for cursor, n := "", 0; n < 100; n++ {
		a := svc.do("HTTP/1.1", svc.request("GET", "/v1/streams?limit=7"+cursor, header, ""))
		var page struct {
			Data       []weir.Stream
			HasMore    bool    `json:"has_more"`
			NextCursor *string `json:"next_cursor"`
		}
		if err := json.Unmarshal([]byte(a.body), &page); err != nil || a.status != 200 || page.Data == nil || page.HasMore != (page.NextCursor != nil) {
			t.Fatalf("a page of the list is %d %s: %v", a.status, a.body, err)
		}
		for _, s := range page.Data {
			ids = append(ids, string(s.ID))
		}
		if !page.HasMore {
			return ids
		}
		cursor = "&cursor=" + *page.NextCursor
	}
	t.Fatal("the list does not end")
	return nil
}

func TestList(t *testing.T) {
	svc := startService(t)
	for key, want := range map[string][]string{"live": {"smalljson", "small", "other", "raw", "id"}, "reader": {"smalljson", "small", "other", "raw", "id"}, "theirs": {"theirs"}, "confined": {"other"}, "demo": {"demo"}} {
		var ids []string
		for _, name := range want {
			ids = append(ids, svc.ids[name])
		}
		if got := svc.list(t, key); strings.Join(got, " ") != strings.Join(ids, " ") {
			t.Errorf("the key %s lists %v, want %v", key, got, ids)
		}
	}
	var rows []row
	add := func(name string, status int, code weir.Code, queries ...string) {
		for _, q := range queries {
			rows = append(rows, row{name, "GET", "/v1/streams?" + q, nil, "", status, code})
		}
	}
	add("L1", 400, weir.InvalidRequest, "limit=0", "limit=101", "limit=-1", "limit=%2b1", "limit=abc", "limit=1.5", "limit=1e1", "limit=%D9%A3", "limit=", "limit=1&limit=1", "limit=01", "limit=18446744073709551617")
	add("L1", 200, "", "limit=1", "limit=100", "", "unknown=1&limit=5", "LIMIT=0")
	ours, theirs := api.PageToken(svc.Project, 7), api.PageToken(svc.other, 7)
	add("L2", 400, weir.InvalidRequest, "cursor=", "cursor=abc", "cursor=AAAAAAAAAAAAAAAAAAAAAAA", "cursor="+ours[1:], "cursor="+ours+"A", "cursor="+theirs, "cursor="+strings.Repeat("A", 12<<10),
		"cursor="+ours+"&cursor="+ours, "cursor=head", "cursor=0", "cursor="+api.PageToken(svc.Project, 0), "cursor=%00")
	add("L2", 200, "", "cursor="+ours, "cursor="+ours+"&limit=1")
	svc.run(t, rows)
	svc.run(t, []row{{"L2", "GET", "/v1/streams?cursor=" + strings.Repeat("A", 60<<10), nil, "", 400, weir.InvalidRequest}}, noListener)
}
