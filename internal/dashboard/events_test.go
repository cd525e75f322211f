package dashboard_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"weir"
	"weir/internal/dashboard"
	"weir/internal/hub"
)

// eventList is a response of the event browser.
type eventList struct {
	Rows []struct {
		Seq, Event, Events, Size int
		Text                     string
		Hex, Cut                 bool
	}
	More      bool
	Next      string
	Searched  int
	Read      int
	Cursor    int
	Batches   int
	Missing   int
	Published bool
}

// browse sends requests until there are no more events, and returns all rows as texts such as
// "3.0 text". A search that starts with "where " is a condition.
func (b *browser) browse(id weir.StreamID, parameter, place, search string) (rows []string, requests int) {
	b.svc.t.Helper()
	q := url.Values{"q": {search}}
	if where, ok := strings.CutPrefix(search, "where "); ok {
		q = url.Values{"where": {where}}
	}
	if place != "" {
		q.Set(parameter, place)
	}
	for {
		var list eventList
		b.svc.must(json.Unmarshal([]byte(b.see("/dashboard/streams/"+string(id)+"/events?"+q.Encode())), &list))
		requests++
		var step []string
		for _, r := range list.Rows {
			step = append(step, fmt.Sprintf("%d.%d %s", r.Seq, r.Event, r.Text))
		}
		if len(step) > dashboard.MaxRows || list.Read > dashboard.FindBytes+weir.MaxBody {
			b.svc.t.Fatalf("a response has %d rows and read %d bytes", len(step), list.Read)
		}
		if parameter == "from" {
			rows = append(step, rows...)
		} else {
			rows = append(rows, step...)
		}
		if !list.More {
			return rows, requests
		}
		q.Set(parameter, list.Next)
	}
}

// newStream creates a stream of 64 MiB.
func (svc *testService) newStream(name string, mode weir.Mode) *hub.Stream {
	svc.t.Helper()
	s, err := svc.Hub.Stream(svc.NewStream(hub.Spec{Name: name, RetentionSeconds: 3600, MaxBytes: 64 << 20, Mode: mode}))
	svc.must(err)
	return s
}

// store publishes a batch under a sequence.
func (svc *testService) store(s *hub.Stream, seq weir.Seq, payload string, events int) {
	svc.t.Helper()
	_, err := s.Publish(context.Background(), &hub.Publish{Seq: seq, Chosen: true, Batch: weir.Batch{Events: uint32(events), Payload: []byte(payload), ContentType: "text/plain"}})
	svc.must(err)
}

// The sequences of the stored batches have their digits in groups, like the cursor above them.
func TestRangeOfSequences(t *testing.T) {
	svc := startService(t)
	s := svc.newStream("orders", weir.JSON)
	svc.store(s, 1000, "[1]", 1)
	svc.store(s, 1001, "[2]", 1)
	if page := svc.signedIn().see("/dashboard/streams/" + string(s.ID)); !strings.Contains(page, "1\u202f000 to 1\u202f001") {
		t.Error("the page does not show the sequences 1\u202f000 to 1\u202f001")
	}
}

// The event browser lists every event of every stored batch once, in both directions, whatever the
// number of events in a batch, and a search finds exactly the events that contain the text. Batches
// above an open gap are listed too.
func TestEventList(t *testing.T) {
	svc := startService(t)
	b := svc.signedIn()
	s := svc.newStream("many", weir.JSON)
	var want, found []string
	for seq := weir.Seq(1); seq < 400; seq++ {
		if seq == 390 {
			continue // an open gap
		}
		n := 1 + int(seq%5)
		if seq == 200 {
			n = 350 // more events than one response can have
		}
		var events []string
		for i := range n {
			event := fmt.Sprintf(`{"n":[%d,"a\"]"],"%s":{}}`, i, strings.Repeat("x", i%3))
			if seq%100 == 0 && i%2 == 0 {
				event = fmt.Sprintf(`"Needle %d, \\"`, i)
				found = append(found, fmt.Sprintf("%d.%d %s", seq, i, event))
			}
			events = append(events, event)
			want = append(want, fmt.Sprintf("%d.%d %s", seq, i, event))
		}
		svc.store(s, seq, "["+strings.Join(events, ",")+"]", n)
	}
	slices.Reverse(want)
	slices.Reverse(found)
	for _, c := range []struct {
		parameter, place, search string
		want                     []string
	}{
		{"before", "", "", want}, {"from", "0", "", want}, {"before", "", "needle", found}, {"from", "0", "NEEDLE", found}, {"before", "", "nowhere", nil},
		{"from", "399.2", "", want[:slices.Index(want, `399.1 {"n":[1,"a\"]"],"x":{}}`)]}, {"before", "1.1", "", want[len(want)-1:]},
	} {
		if got, _ := b.browse(s.ID, c.parameter, c.place, c.search); !slices.Equal(got, c.want) {
			t.Errorf("%s=%s, search %q: %d events, want %d\n%q\n%q", c.parameter, c.place, c.search, len(got), len(c.want), got[:min(3, len(got))], c.want[:min(3, len(c.want))])
		}
	}
	for where, want := range map[string]int{"n.0>347": 1, "n.0=4": 80, "n.5=1": 0} {
		if rows, _ := b.browse(s.ID, "before", "", "where "+where); len(rows) != want {
			t.Errorf("where %s: %d events, want %d", where, len(rows), want)
		}
	}
	var list eventList
	svc.must(json.Unmarshal([]byte(b.see("/dashboard/streams/"+string(s.ID)+"/events?floor=398")), &list))
	if list.Rows[0].Seq != 399 || list.Rows[len(list.Rows)-1].Seq != 398 || list.More || list.Cursor != 399 || list.Batches != 398 || list.Missing != 1 {
		t.Errorf("events from 398 on: %+v", list)
	}
	for path, want := range map[string]string{"200.349": `{"n":[349,"a\"]"],"x":{}}`, "200.0": `"Needle 0, \\"`, "200.0?first=3": `"Ne`} {
		if got := b.see("/dashboard/streams/" + string(s.ID) + "/events/" + path); got != want {
			t.Errorf("event %s is %s, want %s", path, got, want)
		}
	}
	for path, want := range map[string]int{
		"/events?before=x": 400, "/events?from=1.-1": 400, "/events?since=now": 400, "/events?where=paid": 400, "/events?q=" + strings.Repeat("x", 201): 400, "/events/x": 400,
		"/events/1?first=x": 400, "/events/390": 404, "/events/1.9": 404, "/events/500": 404,
	} {
		if status, _, _ := b.get("/dashboard/streams/" + string(s.ID) + path); status != want {
			t.Errorf("%s: status %d, want %d", path, status, want)
		}
	}
}

// A request reads a bounded number of bytes, however large the events are, and the list has the
// beginning of an event only.
func TestLargeEvents(t *testing.T) {
	svc := startService(t)
	b := svc.signedIn()
	s := svc.newStream("large", weir.Raw)
	payload := strings.Repeat("0123456789abcdef", 1<<17) // 2 MiB
	for seq := range weir.Seq(24) {
		svc.store(s, seq+1, payload, 1)
	}
	svc.store(s, 25, "\x00\xff\x01", 1)
	svc.store(s, 26, strings.Repeat("ä", 200), 1)
	var first, large eventList
	svc.must(json.Unmarshal([]byte(b.see("/dashboard/streams/"+string(s.ID)+"/events")), &first))
	svc.must(json.Unmarshal([]byte(b.see("/dashboard/streams/"+string(s.ID)+"/events?before=25")), &large))
	for _, list := range []eventList{first, large} {
		if !list.More || list.Read > dashboard.ListBytes+weir.MaxBody {
			t.Errorf("a response has %d rows and read %d bytes; more: %t", len(list.Rows), list.Read, list.More)
		}
	}
	if r := first.Rows; r[0].Text != strings.Repeat("ä", 120) || !r[0].Cut || r[1].Text != "00 ff 01" || !r[1].Hex || r[1].Cut {
		t.Errorf("small events: %+v", r[:2])
	}
	if r := large.Rows[0]; r.Size != 2<<20 || len(r.Text) != 240 || !r.Cut {
		t.Errorf("a large event: %+v", r)
	}
	if rows, _ := b.browse(s.ID, "before", "", ""); len(rows) != 26 {
		t.Errorf("%d events, want 26", len(rows))
	}
	status, text, header := b.get("/dashboard/streams/" + string(s.ID) + "/events/3")
	if status != http.StatusOK || text != payload || header.Get("X-Size") != fmt.Sprint(2<<20) || header.Get("Content-Disposition") != `attachment; filename="large-3.0.bin"` {
		t.Errorf("a whole event: status %d, %d bytes, %v", status, len(text), header)
	}
}

// The events of a payload are found without parsing it into values.
func TestEachEvent(t *testing.T) {
	for _, c := range []struct {
		array string
		want  []string
	}{
		{`[]`, nil}, {`[1]`, []string{"1"}}, {` [ 1 , [2, 3] ,{"a":[1,{}]} ] `, []string{"1", "[2, 3]", `{"a":[1,{}]}`}},
		{`["a,]\"","\\",""]`, []string{`"a,]\""`, `"\\"`, `""`}}, {`[[],{},null]`, []string{"[]", "{}", "null"}},
	} {
		var got []string
		dashboard.EachEvent(weir.JSON, []byte(c.array), func(i, from, to int) bool {
			if i != len(got) {
				t.Errorf("%s: index %d after %d events", c.array, i, len(got))
			}
			got = append(got, c.array[from:to])
			return true
		})
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", c.array, got, c.want)
		}
	}
}

// EachEvent finds the same elements as encoding/json in every valid array.
func FuzzEachEvent(f *testing.F) {
	f.Add([]byte(`[1,"a",{"b":[]}]`))
	f.Fuzz(func(t *testing.T, array []byte) {
		var want []json.RawMessage
		if json.Unmarshal(array, &want) != nil || want == nil {
			return
		}
		var got [][]byte
		dashboard.EachEvent(weir.JSON, array, func(_, from, to int) bool {
			got = append(got, array[from:to])
			return true
		})
		if !slices.EqualFunc(got, want, func(a []byte, b json.RawMessage) bool { return bytes.Equal(a, b) }) {
			t.Errorf("%s: %q, want %q", array, got, want)
		}
	})
}
