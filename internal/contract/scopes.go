package contract

import (
	"slices"
)

const forbidden = "project_forbidden"

var scopeCases = []Case{
	{"read", `D20: permission read covers get, list, cursor, batches and subscribe; anything outside the scope gives 403 project_forbidden`, func(t *T) {
		s := t.jsonStream()
		t.Publish(s.ID, `[1]`)
		k, _ := t.newKey(Key{Kind: "live", Permissions: []string{"read"}})
		path := "/v1/streams/" + s.ID
		t.Get(path, WithKey(k)).Want(200)
		t.Get(path+"/cursor", WithKey(k)).Want(200)
		t.Get(BatchPath(s.ID, 1), WithKey(k)).Want(200)
		t.Get("/v1/streams", WithKey(k)).Want(200)
		t.Subscribe(s.ID, "cursor=0", WithKey(k)).Batch(1)
		t.Post(NextPath(s.ID), JSONBody(`{"events":[]}`), WithKey(k)).Refused(403, forbidden)
		t.Post(SeqPath(s.ID, 2), JSONBody(`{"events":[]}`), WithKey(k)).Refused(403, forbidden)
		t.Post(SeqPath(s.ID, 1), JSONBody(`{"events":[]}`), WithKey(k)).Refused(403, forbidden)
		t.Post("/v1/streams", JSONBody(`{"name":"x"}`), WithKey(k)).Refused(403, forbidden)
		t.Delete(path, WithKey(k)).Refused(403, forbidden)
	}},
	{"publish", `D20: permission publish covers both ways to publish`, func(t *T) {
		s := t.jsonStream()
		k, _ := t.newKey(Key{Kind: "live", Permissions: []string{"publish"}})
		path := "/v1/streams/" + s.ID
		t.Publish(s.ID, `[1]`, WithKey(k))
		t.Post(SeqPath(s.ID, 2), JSONBody(`{"events":[]}`), WithKey(k)).Want(202)
		t.Get(path, WithKey(k)).Refused(403, forbidden)
		t.Get(path, WithKey(k), WithHeader("Accept", "text/event-stream")).Refused(403, forbidden)
		t.Get(path+"/cursor", WithKey(k)).Refused(403, forbidden)
		t.Get(BatchPath(s.ID, 1), WithKey(k)).Refused(403, forbidden)
		t.Get("/v1/streams", WithKey(k)).Refused(403, forbidden)
		t.Post("/v1/streams", JSONBody(`{"name":"x"}`), WithKey(k)).Refused(403, forbidden)
		t.Delete(path, WithKey(k)).Refused(403, forbidden)
	}},
	{"manage", `D20: permission manage covers create and delete`, func(t *T) {
		k, _ := t.newKey(Key{Kind: "test", Permissions: []string{"manage"}})
		s := t.CreateBody(`{"name":"managed"}`, WithKey(k))
		t.Post(NextPath(s.ID), JSONBody(`{"events":[]}`), WithKey(k)).Refused(403, forbidden)
		t.Get("/v1/streams/"+s.ID, WithKey(k)).Refused(403, forbidden)
		t.Get("/v1/streams", WithKey(k)).Refused(403, forbidden)
		t.Delete("/v1/streams/"+s.ID, WithKey(k)).Want(204)
	}},
	{"confined to streams", `D20: a key may be confined to a list of stream ids; listing streams needs the permission read and shows only streams that the key may read`, func(t *T) {
		in, second, out := t.jsonStream(), t.jsonStream(), t.jsonStream()
		k, _ := t.newKey(Key{Kind: "live", Streams: []string{in.ID, second.ID}})
		t.Publish(in.ID, `[1]`, WithKey(k))
		t.Get("/v1/streams/"+in.ID, WithKey(k)).Want(200)
		t.eachOfStream(out.ID, func(a *Answer) { a.Refused(403, forbidden) }, WithKey(k))
		t.eachOfStream(NewID(), func(a *Answer) { a.Refused(404, "stream_not_found") }, WithKey(k))
		want := []string{second.ID, in.ID}
		if got := ids(t.page("?limit=100", WithKey(k))); !slices.Equal(got, want) {
			t.Errorf("the list shows %v, want %v", got, want)
		}
		first := t.page("?limit=1", WithKey(k))
		if got := ids(first); !slices.Equal(got, want[:1]) || !first.HasMore {
			t.Fatalf("the first page shows %v, has_more %v", got, first.HasMore)
		}
		last := t.page("?limit=1&cursor="+*first.NextCursor, WithKey(k))
		if got := ids(last); !slices.Equal(got, want[1:]) || last.HasMore {
			t.Errorf("the last page shows %v, has_more %v", got, last.HasMore)
		}
		t.Delete("/v1/streams/"+second.ID, WithKey(k)).Want(204)
		if got := ids(t.page("", WithKey(k))); !slices.Equal(got, want[1:]) {
			t.Errorf("after deleting a stream the list shows %v, want %v", got, want[1:])
		}
	}},
	{"creating with a confined key", `D10: a key confined to streams (D20) may create only ids on its list`, func(t *T) {
		id := NewID()
		k, _ := t.newKey(Key{Kind: "live", Permissions: []string{"manage"}, Streams: []string{id}})
		t.Post("/v1/streams", JSONBody(`{"name":"x"}`), WithKey(k)).Refused(403, forbidden)
		t.Post("/v1/streams", JSONBody(`{"name":"x","id":"`+NewID()+`"}`), WithKey(k)).Refused(403, forbidden)
		t.CreateBody(`{"name":"mine","id":"`+id+`"}`, WithKey(k))
		t.Delete("/v1/streams/"+id, WithKey(k)).Want(204)
	}},
	{"confined subscriptions", `D20: the scope holds for subscriptions too`, func(t *T) {
		in, out := t.jsonStream(), t.jsonStream()
		k, _ := t.newKey(Key{Kind: "live", Permissions: []string{"read"}, Streams: []string{in.ID}})
		t.Publish(in.ID, `[1]`)
		t.Subscribe(in.ID, "cursor=0", WithKey(k)).Batch(1)
		t.Get("/v1/streams/"+out.ID, WithHeader("Accept", "text/event-stream"), WithKey(k)).Refused(403, forbidden)
	}},
}

func ids(p Page) []string {
	var list []string
	for _, s := range p.Data {
		list = append(list, s.ID)
	}
	return list
}
