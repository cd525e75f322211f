package access

import (
	"context"
	"errors"
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

	errNotAKey      = weir.Errorf(weir.InvalidAPIKey, "this is a management token, which works only under /manage/v1: send an API key")
	errMissingToken = weir.Errorf(weir.MissingAPIKey, "send a management token in the header field Authorization: Bearer <token>")
	errNotAToken    = weir.Errorf(weir.InvalidAPIKey, "this is an API key, which works only under /v1 and /ds: send a management token")
	errTokenPattern = weir.Errorf(weir.InvalidAPIKey, "the Authorization header field must be Bearer, one space, and a management token: "+TokenForm)
	errUnknownToken = weir.Errorf(weir.InvalidAPIKey, "this management token does not exist")
	errRevokedToken = weir.Errorf(weir.KeyRevoked, "this management token was revoked")
)

// ErrMustWait says that Admit cannot tell without waiting.
var ErrMustWait = errors.New("the key is unknown on this node, so the other nodes must be asked")

const scheme = "Bearer "

// Authenticate returns the caller for the values of the Authorization header fields (D19). The
// error is a *weir.Error: MissingAPIKey if the field is missing or empty, KeyRevoked if the key was
// revoked, StorageUnavailable (see below), and otherwise InvalidAPIKey. A value without the form of a key is refused before any
// lookup.
//
// It only reads memory, with one exception. If nodes share the store, a key that is unknown on this
// node may have just been created on another node. In this case Authenticate first waits until this
// node has caught up with the others. It returns StorageUnavailable if that fails.
func (a *Access) Authenticate(authorization []string) (*Grant, error) {
	return a.Admit(ReadCredentials(authorization), true)
}

// Credentials are the digest of the key in the Authorization header fields of a request, or the
// reason why the fields hold no key. They contain no secret.
type Credentials struct {
	digest  digest
	refusal error
}

// ReadCredentials returns the credentials in the values of the Authorization header fields.
func ReadCredentials(authorization []string) (c Credentials) {
	key, kind, err := Bearer(authorization)
	switch {
	case err != nil:
		c.refusal = err
	case kind == Management:
		c.refusal = errNotAKey
	default:
		c.digest = digestOf(key)
	}
	return c
}

// Admit does the same as Authenticate, for fields that ReadCredentials has read. Reading the fields
// takes most of the time, so a caller that gets the same fields many times should read them only
// once. If the parameter wait is false, Admit never waits, and returns ErrMustWait where it would.
func (a *Access) Admit(c Credentials, wait bool) (*Grant, error) {
	if c.refusal != nil {
		return nil, c.refusal
	}
	g, err := a.grantOf(c.digest, wait)
	switch {
	case err != nil:
		return nil, err
	case g == nil:
		return nil, errUnknown
	case g.hasEnded():
		return nil, errRevoked
	case g.isDue(&a.steady):
		g.end() // the next call of Expire would do the same
		return nil, errRevoked
	}
	if now := a.steady.wallTime(); now-g.lastUsed() >= useGrain {
		g.use(now)
	}
	return g, nil
}

// Bearer returns the key or management token in the values of the Authorization header fields, and
// its kind. The error is a *weir.Error: MissingAPIKey if the field is missing or empty, and
// InvalidAPIKey if the value has another form.
func Bearer(authorization []string) (secret string, kind Kind, err error) {
	if len(authorization) == 0 {
		return "", "", errMissing
	}
	if len(authorization) > 1 {
		return "", "", errHeaders
	}
	// White space around a field value is not part of the value. The server has already removed the
	// white space for HTTP/1.1, but not for HTTP/2 and HTTP/3.
	value := strings.Trim(authorization[0], " \t")
	if value == "" {
		return "", "", errMissing
	}
	if len(value) != len(scheme)+keyLength || !strings.EqualFold(value[:len(scheme)], scheme) {
		return "", "", errPattern
	}
	kind, ok := formOf(value[len(scheme):])
	if !ok {
		return "", "", errPattern
	}
	return value[len(scheme):], kind, nil
}

// grantOf returns the grant of a key or token, or nil if it does not exist. The error is
// StorageUnavailable if this node could not catch up with the other nodes, and ErrMustWait if it
// would have to but must not wait. The lookup time reveals nothing about existing keys: it depends
// on the digest alone, and two keys that differ in one digit have unrelated digests.
func (a *Access) grantOf(d digest, wait bool) (*Grant, error) {
	e := a.withDigest(d)
	if e == nil && a.docs.Shared() {
		if !wait {
			return nil, ErrMustWait
		}
		if a.catchUp.wait(a.docs) != nil {
			return nil, errUnsure
		}
		e = a.withDigest(d)
	}
	if e == nil {
		return nil, nil
	}
	return e.grant, nil
}

func (a *Access) withDigest(d digest) *entry {
	a.mu.RLock()
	defer a.mu.RUnlock()
	return a.digests.Get(d)
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
	err  error         // valid once the channel done is closed
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
