package access

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"weir"
)

// Token is the record of a management token (D36). A program that holds the token can create, list
// and revoke keys and projects under /manage/v1. The record does not contain the token itself.
type Token struct {
	ID         string     `json:"id"`
	Name       string     `json:"name"`
	Masked     string     `json:"masked"` // first 12 and last 4 characters
	CreatedAt  weir.Time  `json:"created_at"`
	LastUsedAt *weir.Time `json:"last_used_at"` // null: never used
	RevokedAt  *weir.Time `json:"revoked_at"`   // null: valid
}

// token returns the record of a token. In the store and in memory, the record of a token is a Key of
// the kind Management without a project. So tokens share the code that stores the last use of keys,
// revokes keys and forgets them.
func (k Key) token() Token {
	return Token{k.ID, k.Name, k.Masked, k.CreatedAt, k.LastUsedAt, k.RevokedAt}
}

// CreateToken creates a management token. The token is durable when the call returns. The returned
// Secret is the only copy of the token. The call fails with InvalidRequest if the name has more than
// 128 code points or control characters, and with StorageUnavailable if the store accepts no changes
// at the moment.
func (a *Access) CreateToken(ctx context.Context, name string) (Token, Secret, error) {
	if err := checkName("token", name, 0); err != nil {
		return Token{}, Secret{}, err
	}
	secret := newSecret(Management)
	record := a.newKey(KeySpec{Kind: Management, Name: name}, secret.Reveal())
	record.Permissions = []Permission{}
	e, _, err := a.store(ctx, record, digestOf(secret.Reveal()))
	if err != nil {
		return Token{}, Secret{}, err
	}
	return a.recordOf(e).token(), secret, nil
}

// Tokens returns the management tokens, oldest first. It includes revoked tokens that are not
// forgotten yet (see Forget).
func (a *Access) Tokens() []Token {
	a.mu.RLock()
	defer a.mu.RUnlock()
	list := make([]Token, 0, a.tokens.Len())
	for _, e := range a.tokens.All() {
		list = append(list, e.current().token())
	}
	slices.SortFunc(list, func(t, u Token) int {
		return cmp.Or(cmp.Compare(t.CreatedAt, u.CreatedAt), cmp.Compare(t.ID, u.ID))
	})
	return list
}

// RevokeToken revokes a management token permanently. When it returns, the revocation is durable,
// and AuthenticateToken refuses the token. Keys that were created with the token stay valid.
// Revoking a revoked token changes nothing. RevokeToken fails with NotFound if there is no such
// token.
func (a *Access) RevokeToken(ctx context.Context, id string) (Token, error) {
	k, err := a.revoke(ctx, "token", id, a.findToken)
	return k.token(), err
}

func (a *Access) findToken(id string) *entry {
	a.mu.RLock()
	defer a.mu.RUnlock()
	return a.tokens.Get(id)
}

// caller returns the key or token with this id, or nil.
func (a *Access) caller(id string) *entry {
	a.mu.RLock()
	defer a.mu.RUnlock()
	if e := a.keys.Get(id); e != nil {
		return e
	}
	return a.tokens.Get(id)
}

// AuthenticateToken returns the caller for the values of the Authorization header fields, which must
// hold a management token. Its errors are those of Authenticate. The returned Grant has no
// permission on any stream.
func (a *Access) AuthenticateToken(authorization []string) (*Grant, error) {
	secret, kind, err := Bearer(authorization)
	switch {
	case errors.Is(err, errMissing):
		return nil, errMissingToken
	case errors.Is(err, errPattern):
		return nil, errTokenPattern
	case err != nil:
		return nil, err
	case kind != Management:
		return nil, errNotAToken
	}
	g, err := a.grantOf(digestOf(secret), true)
	switch {
	case err != nil:
		return nil, err
	case g == nil:
		return nil, errUnknownToken
	case g.hasEnded():
		return nil, errRevokedToken
	}
	if now := a.steady.wallTime(); now-g.lastUsed() >= useGrain {
		g.use(now)
	}
	return g, nil
}

// idempotencyHour is the minimum time for which CreateKeyOnce remembers an idempotency key.
const idempotencyHour = time.Hour

// CreateKeyOnce is like CreateKey, but can be repeated (D36). A later call with the same management
// token and the same idempotency key returns the key that the first call created, and the result
// made is false. This works for at least an hour after the first call, on all nodes and also after
// a restart. If the settings differ from those of the first call, it fails with InvalidRequest. The
// parameter token is the token itself, not its id.
func (a *Access) CreateKeyOnce(ctx context.Context, s KeySpec, token, idempotencyKey string) (k Key, secret Secret, made bool, err error) {
	if s.Kind != Live && s.Kind != Test {
		return Key{}, Secret{}, false, weir.Errorf(weir.InvalidRequest, "unknown kind of key: use %s or %s", Live, Test)
	}
	if err := a.docs.CatchUp(ctx); err != nil { // another node may have received the first call
		return Key{}, Secret{}, false, storeError("create a key", err)
	}
	hour := int64(a.steady.wallTime().Std().Unix() / int64(idempotencyHour/time.Second))
	for _, h := range []int64{hour, hour - 1, hour + 1} { // the clock of the node that received the first call may be ahead
		for _, kind := range []Kind{Live, Test} {
			secret = derivedSecret(kind, token, idempotencyKey, h)
			if e := a.withDigest(digestOf(secret.Reveal())); e != nil {
				k, err = a.repeated(e, s)
				return k, secret, false, err
			}
		}
	}
	secret = derivedSecret(s.Kind, token, idempotencyKey, hour)
	k, made, err = a.makeKey(ctx, s, secret.Reveal())
	if err == nil && !made { // another call with the same idempotency key was faster
		k, err = a.repeated(a.withDigest(digestOf(secret.Reveal())), s)
	}
	if err != nil {
		return Key{}, Secret{}, false, err
	}
	return k, secret, made, nil
}

// repeated returns the record of a key that an earlier call of CreateKeyOnce created, if its
// settings are those of s.
func (a *Access) repeated(e *entry, s KeySpec) (Key, error) {
	if e == nil {
		return Key{}, errors.New("create a key: the key was deleted in the meantime")
	}
	k, wanted := a.recordOf(e), a.newKey(s, derivedSecret(s.Kind, "", "", 0).Reveal())
	if _, ok := a.Project(k.Project); !ok { // the project was deleted while the key was made, and a crash kept the method store from revoking it
		return Key{}, noProject(k.Project)
	}
	after := weir.Time(0)
	if k.RevokeAt != nil {
		after = *k.RevokeAt - k.CreatedAt
	}
	same := k.Project == wanted.Project && k.Kind == wanted.Kind && k.Name == wanted.Name && after == weir.Time(s.RevokeAfter*1000) &&
		slices.Equal(k.Permissions, wanted.Permissions) && slices.Equal(k.Streams, wanted.Streams)
	if !same {
		return Key{}, weir.Errorf(weir.InvalidRequest, "an earlier request with this Idempotency-Key created a key with other settings")
	}
	return k, nil
}
