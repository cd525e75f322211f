package access

import (
	"context"
	"strings"
	"sync"
	"time"

	"weir"
	"weir/internal/engine"
)

// The refusals of Authenticate. They are created once, so that refusing invalid requests allocates
// no memory.
var (
	errMissing = weir.Errorf(weir.MissingAPIKey, "send your key in the header field Authorization: Bearer <key>")
	errHeaders = weir.Errorf(weir.InvalidAPIKey, "send exactly one Authorization header field")
	errPattern = weir.Errorf(weir.InvalidAPIKey, "the Authorization header field must be Bearer, one space, and a key: "+KeyForm)
	errUnknown = weir.Errorf(weir.InvalidAPIKey, "this key does not exist")
	errUnsure  = weir.Errorf(weir.StorageUnavailable, "the store did not answer, so the key could not be checked: retry the request")
	errRevoked = weir.Errorf(weir.KeyRevoked, "this key was revoked")
)

const scheme = "Bearer "

// Authenticate returns the caller for the values of the Authorization header fields (D19). The
// error is a *weir.Error: MissingAPIKey if the field is missing or empty, KeyRevoked if the key was
// revoked, and otherwise InvalidAPIKey. A value without the form of a key is refused before any
// lookup.
//
// It only reads memory, with one exception. If nodes share the store, a key that is unknown on this
// node may have just been created on another node. In this case Authenticate first waits until this
// node has caught up with the others. It returns StorageUnavailable if that fails.
func (a *Access) Authenticate(authorization []string) (*Grant, error) {
	if len(authorization) == 0 {
		return nil, errMissing
	}
	if len(authorization) > 1 {
		return nil, errHeaders
	}
	// White space around a field value is not part of the value. HTTP/1.1 has already removed the
	// white space, but HTTP/2 and HTTP/3 have not.
	value := strings.Trim(authorization[0], " \t")
	if value == "" {
		return nil, errMissing
	}
	if len(value) != len(scheme)+keyLength || !strings.EqualFold(value[:len(scheme)], scheme) {
		return nil, errPattern
	}
	key := value[len(scheme):]
	if _, ok := kindOf(key); !ok {
		return nil, errPattern
	}
	// The lookup time reveals nothing about existing keys: it depends on the digest alone, and two
	// keys that differ in one digit have unrelated digests.
	d := digestOf(key)
	e := a.withDigest(d)
	if e == nil && a.docs.Shared() {
		if a.catchUp.wait(a.docs) != nil {
			return nil, errUnsure
		}
		e = a.withDigest(d)
	}
	if e == nil {
		return nil, errUnknown
	}
	g := e.grant
	if g.hasEnded() {
		return nil, errRevoked
	}
	if now := weir.TimeOf(a.now()); now-g.lastUsed() >= useGrain {
		g.use(now)
	}
	return g, nil
}

func (a *Access) withDigest(d digest) *entry {
	a.mu.RLock()
	defer a.mu.RUnlock()
	return a.digests[d]
}

// catchUp lets callers wait until this node knows the changes that other nodes made in a shared
// store. All waiting callers share one request to the store, and there are at most 20 requests per
// second. So clients that send unknown keys cannot overload the store.
type catchUp struct {
	mu   sync.Mutex
	last time.Time // when the last request started
	next *inquiry  // the request that has not started yet; callers that arrive now join it
}

// inquiry is one request to the store.
type inquiry struct {
	done chan struct{} // closed when the request has ended
	err  error         // valid once done is closed
}

const (
	catchUpEvery   = 50 * time.Millisecond
	catchUpTimeout = 5 * time.Second
)

// wait returns when this node knows every change that any node acknowledged before the call. A
// caller joins only a request that has not started yet, because a request that has already started
// could miss a change made just before the call.
func (n *catchUp) wait(docs engine.Documents) error {
	n.mu.Lock()
	q := n.next
	if q == nil {
		q = &inquiry{done: make(chan struct{})}
		n.next = q
		time.AfterFunc(catchUpEvery-time.Since(n.last), func() {
			n.mu.Lock()
			n.next, n.last = nil, time.Now()
			n.mu.Unlock()
			ctx, cancel := context.WithTimeout(context.Background(), catchUpTimeout)
			defer cancel()
			q.err = docs.CatchUp(ctx)
			close(q.done)
		})
	}
	n.mu.Unlock()
	<-q.done
	return q.err
}
