package contract

import (
	"slices"
)

const forbidden = "project_forbidden"

var scopeCases = []Case{
	{"read", `D20: permission "read": get, list, cursor, batches, subscribe; "What a scope forbids: 403 project_forbidden"`, func(t *T) {
		s := t.jsonStream()
		t.publish(s.ID, `[1]`)
		k, _ := t.newKey(Key{Kind: "live", Permissions: []string{"read"}})
		path := "/v1/streams/" + s.ID
		t.get(path, key(k)).want(200)
		t.get(path+"/cursor", key(k)).want(200)
		t.get(batchPath(s.ID, 1), key(k)).want(200)
		t.get("/v1/streams", key(k)).want(200)
		t.subscribe(s.ID, "cursor=0", key(k)).batch(1)
		t.post(nextPath(s.ID), jsonBody(`{"events":[]}`), key(k)).refused(403, forbidden)
		t.post(seqPath(s.ID, 2), jsonBody(`{"events":[]}`), key(k)).refused(403, forbidden)
		t.post(seqPath(s.ID, 1), jsonBody(`{"events":[]}`), key(k)).refused(403, forbidden)
		t.post("/v1/streams", jsonBody(`{"name":"x"}`), key(k)).refused(403, forbidden)
		t.delete(path, key(k)).refused(403, forbidden)
	}},
	{"publish", `D20: permission "publish"`, func(t *T) {
		s := t.jsonStream()
		k, _ := t.newKey(Key{Kind: "live", Permissions: []string{"publish"}})
		path := "/v1/streams/" + s.ID
		t.publish(s.ID, `[1]`, key(k))
		t.post(seqPath(s.ID, 2), jsonBody(`{"events":[]}`), key(k)).want(202)
		t.get(path, key(k)).refused(403, forbidden)
		t.get(path, key(k), header("Accept", "text/event-stream")).refused(403, forbidden)
		t.get(path+"/cursor", key(k)).refused(403, forbidden)
		t.get(batchPath(s.ID, 1), key(k)).refused(403, forbidden)
		t.get("/v1/streams", key(k)).refused(403, forbidden)
		t.post("/v1/streams", jsonBody(`{"name":"x"}`), key(k)).refused(403, forbidden)
		t.delete(path, key(k)).refused(403, forbidden)
	}},
	{"manage", `D20: permission "manage (create, delete)"`, func(t *T) {
		k, _ := t.newKey(Key{Kind: "test", Permissions: []string{"manage"}})
		s := t.createBody(`{"name":"managed"}`, key(k))
		t.post(nextPath(s.ID), jsonBody(`{"events":[]}`), key(k)).refused(403, forbidden)
		t.get("/v1/streams/"+s.ID, key(k)).refused(403, forbidden)
		t.get("/v1/streams", key(k)).refused(403, forbidden)
		t.delete("/v1/streams/"+s.ID, key(k)).want(204)
	}},
	{"confined to streams", `D20: "a list of stream ids that it is confined to"; "List needs read and shows only what the key may read"`, func(t *T) {
		in, second, out := t.jsonStream(), t.jsonStream(), t.jsonStream()
		k, _ := t.newKey(Key{Kind: "live", Streams: []string{in.ID, second.ID}})
		t.publish(in.ID, `[1]`, key(k))
		t.get("/v1/streams/"+in.ID, key(k)).want(200)
		t.eachOfStream(out.ID, func(a *Answer) { a.refused(403, forbidden) }, key(k))
		t.eachOfStream(newID(), func(a *Answer) { a.refused(404, "stream_not_found") }, key(k))
		want := []string{second.ID, in.ID}
		if got := ids(t.page("?limit=100", key(k))); !slices.Equal(got, want) {
			t.Errorf("the list shows %v, want %v", got, want)
		}
		first := t.page("?limit=1", key(k))
		if got := ids(first); !slices.Equal(got, want[:1]) || !first.HasMore {
			t.Fatalf("the first page shows %v, has_more %v", got, first.HasMore)
		}
		last := t.page("?limit=1&cursor="+*first.NextCursor, key(k))
		if got := ids(last); !slices.Equal(got, want[1:]) || last.HasMore {
			t.Errorf("the last page shows %v, has_more %v", got, last.HasMore)
		}
		t.delete("/v1/streams/"+second.ID, key(k)).want(204)
		if got := ids(t.page("", key(k))); !slices.Equal(got, want[1:]) {
			t.Errorf("after deleting one the list shows %v", got)
		}
	}},
	{"confined and creating", `D10: "A key confined to streams (D20) may create only an id on its list"`, func(t *T) {
		id := newID()
		k, _ := t.newKey(Key{Kind: "live", Permissions: []string{"manage"}, Streams: []string{id}})
		t.post("/v1/streams", jsonBody(`{"name":"x"}`), key(k)).refused(403, forbidden)
		t.post("/v1/streams", jsonBody(`{"name":"x","id":"`+newID()+`"}`), key(k)).refused(403, forbidden)
		t.createBody(`{"name":"mine","id":"`+id+`"}`, key(k))
		t.delete("/v1/streams/"+id, key(k)).want(204)
	}},
	{"confined subscriptions", `D20 holds for subscriptions`, func(t *T) {
		in, out := t.jsonStream(), t.jsonStream()
		k, _ := t.newKey(Key{Kind: "live", Permissions: []string{"read"}, Streams: []string{in.ID}})
		t.publish(in.ID, `[1]`)
		t.subscribe(in.ID, "cursor=0", key(k)).batch(1)
		t.get("/v1/streams/"+out.ID, header("Accept", "text/event-stream"), key(k)).refused(403, forbidden)
	}},
}

func ids(p Page) []string {
	var list []string
	for _, s := range p.Data {
		list = append(list, s.ID)
	}
	return list
}
