package contract

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync/atomic"
	"time"
)

// The header fields that a publish may have by D38.
var (
	inOrder = WithHeader("X-Svc-Contiguous", "true")
	names   = func(p string) Option { return WithHeader("X-Svc-Publisher", p) }
)

// madeBy checks the publisher in the header of an acknowledgement. If want is empty, there must be
// no such header field.
func (a *Answer) madeBy(want string) {
	a.t.Helper()
	got := a.Header.Values("X-Svc-Publisher")
	if want == "" && len(got) == 0 || len(got) == 1 && got[0] == want && want != "" {
		return
	}
	a.t.Errorf("%s: %d: x-svc-publisher is %q, want %q", a.request, a.Status, got, want)
}

var contiguousCases = []Case{
	{"only the next", `D38: with x-svc-contiguous a batch is stored only if its sequence is at most the cursor plus one (in a stream in which nothing was ever stored: 0 or 1); otherwise 412 sequence_not_next, and nothing is stored`, func(t *T) {
		s, one := t.jsonStream(), JSONBody(`{"events":[1]}`)
		for _, seq := range []int64{2, 3, reach, reach + 1, 1<<53 - 1} {
			t.Post(SeqPath(s.ID, seq), one, inOrder).Refused(412, "sequence_not_next")
		}
		if got := t.Stream(s.ID); got.Cursor != 0 || got.BytesStored != 0 {
			t.Errorf("refused publishes changed the stream: %+v", got)
		}
		t.Post(SeqPath(s.ID, 0), one, inOrder).Want(202)
		t.Post(SeqPath(s.ID, 2), one, inOrder).Refused(412, "sequence_not_next")
		for seq := int64(1); seq <= 3; seq++ {
			t.Post(SeqPath(s.ID, seq), one, inOrder).Want(202)
		}
		t.Post(SeqPath(s.ID, 5), one, inOrder).Refused(412, "sequence_not_next")
		for seq := int64(0); seq <= 3; seq++ {
			t.Post(SeqPath(s.ID, seq), one, inOrder).Want(200)
		}
		t.Publish(s.ID, `["by the server"]`)
		t.Post(SeqPath(s.ID, 6), one, inOrder).Refused(412, "sequence_not_next")
		t.Post(SeqPath(s.ID, 5), one, inOrder).Want(202)
		t.Post("/v1/streams/"+s.ID+"/x", one, inOrder).Refused(409, "invalid_sequence")
		empty := t.jsonStream()
		t.Post(SeqPath(empty.ID, 1), one, inOrder).Want(202)
		t.Post(SeqPath(empty.ID, 0), one, inOrder).Refused(409, "invalid_sequence")
	}},
	{"gaps of others", `D38: everything else stays as in D3: a missing sequence below the cursor can be filled while its gap is open, and not after that`, func(t *T) {
		s, one := t.jsonStream(), JSONBody(`{"events":[1]}`)
		t.PublishAt(s.ID, 5, `[]`)
		t.Post(SeqPath(s.ID, 3), one, inOrder).Want(202)
		t.Post(SeqPath(s.ID, 7), one, inOrder).Refused(412, "sequence_not_next")
		t.Post(SeqPath(s.ID, 6), one, inOrder).Want(202)
		Eventually(t, t.GapGrace+Patience, "sequence 4 is closed", func() bool {
			return t.Post(SeqPath(s.ID, 4), JSONBody(`not JSON`), inOrder).Status == 409
		})
	}},
	{"needs no body", `D19, D38: the server decides on 412 in the same step as on 409 and 422: after it has checked the content type and the declared size, and before it reads the body`, func(t *T) {
		s := t.jsonStream()
		t.Post(SeqPath(s.ID, 2), announced("application/json", 1000), inOrder).Refused(412, "sequence_not_next")
		t.Post(SeqPath(s.ID, 2), JSONBody(`not JSON`), inOrder).Refused(412, "sequence_not_next")
		t.Post(SeqPath(s.ID, 2), announced("text/plain", 1000), inOrder).Refused(415, "unsupported_media_type")
		t.Post(SeqPath(s.ID, 2), announced("application/json", BodyLimit+1), inOrder).Refused(413, "payload_too_large")
	}},
	{"values", `D38: the only value of x-svc-contiguous is true; x-svc-publisher has 1 to 64 visible ASCII characters; any other value gives 400, before the sequence is checked`, func(t *T) {
		s, one := t.jsonStream(), JSONBody(`{"events":[1]}`)
		for _, bad := range [][]string{{"TRUE"}, {"True"}, {"false"}, {"1"}, {"yes"}, {""}, {"true,true"}, {"true", "true"}, {"true", "false"}} {
			for _, seq := range []int64{1, 5000} {
				t.Post(SeqPath(s.ID, seq), one, WithHeader("X-Svc-Contiguous", bad...)).Refused(400, "invalid_request_error")
			}
		}
		for _, bad := range [][]string{{""}, {strings.Repeat("p", 65)}, {"two words"}, {"é"}, {"a", "a"}, {"a", "b"}} {
			t.Post(SeqPath(s.ID, 1), one, WithHeader("X-Svc-Publisher", bad...)).Refused(400, "invalid_request_error")
		}
		t.Post(SeqPath(s.ID, 1), body("text/plain", nil), names("two words")).Refused(415, "unsupported_media_type")
		seq := int64(0)
		for _, good := range []string{"p", strings.Repeat("p", 64), `!"#$%&'()*+,-./:;<=>?@[\]^_{|}~`, "true"} {
			seq++
			t.Post(SeqPath(s.ID, seq), one, names(good), inOrder).Want(202).madeBy(good)
			t.Post(SeqPath(s.ID, seq), one).Want(200).madeBy(good)
		}
	}},
	{"whose batch it is", `D38: the acknowledgement of a stored batch or a duplicate has x-svc-publisher with the name that is stored with the batch, and no such field if no name is stored; the response to a read never has the field`, func(t *T) {
		for _, s := range []Stream{t.jsonStream(), t.rawStream()} {
			content := JSONBody(`{"events":[1]}`)
			if s.Mode == "raw" {
				content = RawBody([]byte("bytes"))
			}
			t.Post(SeqPath(s.ID, 1), content, names("mine")).Want(202).madeBy("mine")
			t.Post(SeqPath(s.ID, 1), content, names("yours")).Want(200).madeBy("mine")
			t.Post(SeqPath(s.ID, 1), content, inOrder).Want(200).madeBy("mine")
			t.Post(SeqPath(s.ID, 2), content, inOrder).Want(202).madeBy("")
			t.Post(SeqPath(s.ID, 2), content, names("mine")).Want(200).madeBy("")
			t.Post(SeqPath(s.ID, 4), content, names("mine"), inOrder).Refused(412, "sequence_not_next").madeBy("")
			t.Get(BatchPath(s.ID, 1)).Want(200).madeBy("")
		}
	}},
	{"one of two at once", `D38: if two publishers send the same sequence at once, both learn whose batch is stored`, func(t *T) {
		s := t.jsonStream()
		stored := make(chan string, 20)
		t.together(20, func(i int) {
			mine := fmt.Sprint("publisher-", i)
			a := t.Post(SeqPath(s.ID, 1), JSONBody(`{"events":["the same"]}`), names(mine), inOrder)
			got := a.Header.Get("X-Svc-Publisher")
			if (a.Status == 202) != (got == mine) {
				t.Errorf("%s got %d with publisher %q", mine, a.Status, got)
			}
			stored <- got
		})
		for first := <-stored; len(stored) > 0; {
			if got := <-stored; got != first {
				t.Errorf("acknowledgements name %q and %q", first, got)
			}
		}
	}},
	{"ignored without a sequence", `D38: a publish without a sequence ignores both header fields`, func(t *T) {
		s := t.jsonStream()
		for _, value := range []string{"true", "nonsense"} {
			fields := []Option{JSONBody(`{"events":[1]}`), WithHeader("X-Svc-Contiguous", value), names("two words"), WithHeader("Idempotency-Key", value)}
			t.Post(NextPath(s.ID), fields...).Want(202).madeBy("")
			t.Post(NextPath(s.ID), fields...).Want(200).madeBy("")
		}
	}},
	{"a pipeline", `D38: a pipeline of publishes with x-svc-contiguous never leaves a gap, however slow or broken its connections are`, pipeline},
	{"which stream it is", `D39: every response about a stream has x-svc-stream-created with its created_at`, streamCreated},
}

// pipeline keeps 64 batches in flight. Their requests arrive in any order. Some have slow bodies,
// and some are aborted. Each batch is sent again until it is acknowledged.
func pipeline(t *T) {
	s := t.jsonStream()
	const inFlight, n = 64, 250
	var next atomic.Int64
	t.together(inFlight, func(int) {
		for seq := next.Add(1); seq <= n && t.inPipeline(s.ID, seq); seq = next.Add(1) {
		}
	})
	if c := t.Cursor(s.ID).Cursor; c != n {
		t.Errorf("the cursor is %d, want %d", c, n)
	}
	sub := t.Subscribe(s.ID, "cursor=0")
	for seq := int64(1); seq <= n; seq++ {
		t.same(sub.Batch(seq).Events, fmt.Appendf(nil, `[%d]`, seq))
	}
}

// inPipeline sends a batch again and again until it is acknowledged. It returns false if the
// response is an error other than 412, or after 1,000 attempts.
func (t *T) inPipeline(id string, seq int64) bool {
	for tries := 1; ; tries++ {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		if rand.IntN(4) == 0 && tries < 5 {
			time.AfterFunc(rand.N(30*time.Millisecond), cancel)
		}
		resp, err := t.Try(ctx, http.MethodPost, SeqPath(id, seq), slowly(fmt.Sprintf(`{"events":[%d]}`, seq)), inOrder, names("pipeline"))
		status, publisher := 0, ""
		if err == nil {
			status, publisher = resp.StatusCode, resp.Header.Get("X-Svc-Publisher")
			ReadAll(resp)
		}
		cancel()
		switch {
		case (err != nil || status == 412) && tries < 1000: // the request was aborted, or the batch came too early
		case (status == 202 || status == 200) && publisher == "pipeline":
			return true
		default:
			t.Errorf("batch %d: status %d, publisher %q, %v, after %d attempts", seq, status, publisher, err, tries)
			return false
		}
	}
}

// slowly sends a JSON body. It splits one in three bodies into two parts, with a short pause
// between them.
func slowly(text string) Option {
	return func(r *Request) {
		JSONBody(text)(r)
		if rand.IntN(3) > 0 {
			return
		}
		first, second := strings.NewReader(text[:5]), strings.NewReader(text[5:])
		r.Body = io.MultiReader(first, pause(rand.N(20*time.Millisecond)), second)
	}
}

// pause is a reader that waits for some time and then returns io.EOF.
type pause time.Duration

func (p pause) Read([]byte) (int, error) { <-time.After(time.Duration(p)); return 0, io.EOF }

func streamCreated(t *T) {
	s := t.jsonStream()
	of := func(s Stream) func(*Answer) {
		return func(a *Answer) {
			t.Helper()
			if got := a.Header.Values("X-Svc-Stream-Created"); len(got) != 1 || got[0] != s.CreatedAt {
				t.Errorf("%s: %d: x-svc-stream-created is %q, want %q", a.request, a.Status, got, s.CreatedAt)
			}
		}
	}
	none := func(a *Answer) {
		t.Helper()
		if got := a.Header.Values("X-Svc-Stream-Created"); len(got) != 0 {
			t.Errorf("%s: %d: x-svc-stream-created is %q, want none", a.request, a.Status, got)
		}
	}
	one, here := JSONBody(`{"events":[1]}`), "/v1/streams/"+s.ID
	about := func(is func(*Answer)) {
		t.Helper()
		is(t.Post(SeqPath(s.ID, 1), one).Want(202))
		is(t.Post(SeqPath(s.ID, 1), one).Want(200))
		is(t.Post(NextPath(s.ID), one).Want(202))
		is(t.Get(here).Want(200))
		is(t.do(http.MethodHead, here).Want(200))
		is(t.Get(here + "/cursor").Want(200))
		is(t.Get(BatchPath(s.ID, 1)).Want(200))
		is(t.Get(BatchPath(s.ID, 9)).Want(404))
		is(t.Post(SeqPath(s.ID, 9), one, inOrder).Want(412))
		is(t.Post(SeqPath(s.ID, 5000), one).Want(422))
		is(t.Post(here+"/x", one).Want(409))
		is(t.Post(NextPath(s.ID), JSONBody(`{`)).Want(400))
		is(t.Post(NextPath(s.ID), body("text/plain", nil)).Want(415))
		is(t.Get(here+"?cursor=x", WithHeader("Accept", "text/event-stream")).Want(400))
		ctx, cancel := contextWithTimeout()
		defer cancel()
		resp := t.Send(ctx, http.MethodGet, here, WithHeader("Accept", "text/event-stream"))
		defer resp.Body.Close()
		is(&Answer{t, "subscribe", resp.StatusCode, resp.Header, nil})
	}
	about(of(s))
	none(t.Get(here, WithKey(t.OtherLive)).Want(403))
	none(t.Get(here, WithKey("")).Want(401))
	none(t.Get("/v1/streams").Want(200))
	none(t.Get("/v1/streams/" + NewID()).Want(404))
	of(s)(t.Delete(here).Want(204))
	none(t.Get(here).Want(404))
	text := []byte(`{"name":"again","id":"` + s.ID + `"}`)
	a := t.Post("/v1/streams", body("application/json", bytes.Clone(text))).Want(201)
	var again Stream
	a.decode(&again)
	of(again)(a)
	about(of(again))
}
