package access

import (
	"context"
	"strings"
	"sync"
	"time"

	"weir"
	"weir/internal/engine"
)

// The refusals of Authenticate, made once: who sends garbage costs no memory.
var (
	errMissing = weir.Errorf(weir.MissingAPIKey, "send your key in the header field Authorization: Bearer <key>")
	errHeaders = weir.Errorf(weir.InvalidAPIKey, "send exactly one Authorization header field")
	errPattern = weir.Errorf(weir.InvalidAPIKey, "the Authorization header field must be Bearer, one space, and a key: svc_live_ or svc_test_ and 32 lower case hexadecimal digits")
	errUnknown = weir.Errorf(weir.InvalidAPIKey, "there is no such key")
	errUnsure  = weir.Errorf(weir.StorageUnavailable, "the store does not answer: whether there is such a key is not known")
	errRevoked = weir.Errorf(weir.KeyRevoked, "this key was revoked")
)

const scheme = "Bearer "

// Authenticate finds the caller by the values of the Authorization header fields (D19). The error is a *weir.Error:
// MissingAPIKey for no field or an empty one, KeyRevoked, and InvalidAPIKey for everything else. What does not match the
// pattern of a key is refused before anything is looked up. It reads memory alone, but for a key that is not there, which
// another node may have made just now: StorageUnavailable when that cannot be found out.
func (a *Access) Authenticate(authorization []string) (*Grant, error) {
	if len(authorization) == 0 {
		return nil, errMissing
	}
	if len(authorization) > 1 {
		return nil, errHeaders
	}
	// White space around a field's value is no part of it. HTTP/1.1 has cut it off already, HTTP/2 and 3 have not.
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
	// The digest tells nothing about how much of a guess was right, so the time of the search tells nothing either.
	d := digestOf(key)
	e := a.withDigest(d)
	if e == nil && a.news.shared != nil {
		if a.news.wait() != nil {
			return nil, errUnsure
		}
		e = a.withDigest(d)
	}
	if e == nil {
		return nil, errUnknown
	}
	g := e.grant
	if g.over() {
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

// news asks a store that is shared for what others changed: once for all who wait, and a few times a second at most, however many
// send keys that nobody made.
type news struct {
	shared engine.Shared // nil: there are no others

	mu   sync.Mutex
	last time.Time
	next *inquiry // that is not on its way yet
}

type inquiry struct {
	done chan struct{}
	err  error
}

const (
	newsEvery  = 50 * time.Millisecond
	newsWithin = 5 * time.Second
)

// wait returns when everything is known that was told anybody before the call.
func (n *news) wait() error {
	n.mu.Lock()
	q := n.next
	if q == nil {
		q = &inquiry{done: make(chan struct{})}
		n.next = q
		time.AfterFunc(newsEvery-time.Since(n.last), func() {
			n.mu.Lock()
			n.next, n.last = nil, time.Now()
			n.mu.Unlock()
			ctx, cancel := context.WithTimeout(context.Background(), newsWithin)
			defer cancel()
			q.err = n.shared.CatchUp(ctx)
			close(q.done)
		})
	}
	n.mu.Unlock()
	<-q.done
	return q.err
}
