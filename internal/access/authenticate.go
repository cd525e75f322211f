package access

import (
	"strings"

	"weir"
)

// The refusals of Authenticate, made once: who sends garbage costs no memory.
var (
	errMissing = weir.Errorf(weir.MissingAPIKey, "send your key in the header field Authorization: Bearer <key>")
	errHeaders = weir.Errorf(weir.InvalidAPIKey, "send exactly one Authorization header field")
	errPattern = weir.Errorf(weir.InvalidAPIKey, "the Authorization header field must be Bearer, one space, and a key: svc_live_ or svc_test_ and 32 lower case hexadecimal digits")
	errUnknown = weir.Errorf(weir.InvalidAPIKey, "there is no such key")
	errRevoked = weir.Errorf(weir.KeyRevoked, "this key was revoked")
)

const scheme = "Bearer "

// Authenticate finds the caller by the values of the Authorization header fields (D19). The error is a *weir.Error:
// MissingAPIKey for no field or an empty one, KeyRevoked, and InvalidAPIKey for everything else. What does not match the
// pattern of a key is refused before anything is looked up. It reads memory alone.
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
	a.mu.RLock()
	e := a.digests[d]
	a.mu.RUnlock()
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
