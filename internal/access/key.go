package access

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"weir"
	"weir/internal/engine"
)

// Kind is the kind of a key. It selects the rate limit.
type Kind string

// The kinds of keys.
const (
	Live Kind = "live"
	Test Kind = "test"

	// Management is the kind of the record of a management token (D36), which is not a key.
	Management Kind = "management"
)

// Permission is something that a key may do (D20).
type Permission string

// The permissions.
const (
	Read    Permission = "read"
	Publish Permission = "publish"
	Manage  Permission = "manage" // create, change, close and delete streams
)

var allPermissions = []Permission{Read, Publish, Manage}

// maxStreams limits the number of streams in the record of a key that is confined to certain
// streams. The record must stay small, because the whole record is written whenever the last use of
// the key is stored.
const maxStreams = 1000

// MaxRevokeAfter is the longest time after which a key can revoke itself, in seconds: a year (D36).
const MaxRevokeAfter = 31_536_000

// Key is the record of a key (D21). It does not contain the key itself. Its slices and pointers are
// shared: do not modify what they refer to.
type Key struct {
	ID          string          `json:"id"`
	Project     weir.ProjectID  `json:"project"`
	Kind        Kind            `json:"kind"`
	Name        string          `json:"name"`
	Masked      string          `json:"masked"` // first 12 and last 4 characters
	Permissions []Permission    `json:"permissions"`
	Streams     []weir.StreamID `json:"streams"` // empty: the whole project
	CreatedAt   weir.Time       `json:"created_at"`
	LastUsedAt  *weir.Time      `json:"last_used_at"`        // nil: never used
	RevokedAt   *weir.Time      `json:"revoked_at"`          // nil: not revoked
	RevokeAt    *weir.Time      `json:"revoke_at,omitempty"` // when the key revokes itself (D36); nil: never
}

// KeySpec holds the settings of a new key.
type KeySpec struct {
	Project     weir.ProjectID
	Kind        Kind            // ignored by ImportKey, which derives the kind from the key
	Name        string          // at most 128 code points; may be empty
	Permissions []Permission    // empty: all three
	Streams     []weir.StreamID // empty: the whole project
	RevokeAfter int64           // seconds after which the key revokes itself, at most MaxRevokeAfter; 0: never
}

// CreateKey creates a key. The key is durable when the call returns. The returned Secret is the
// only copy of the key. The call fails with InvalidRequest if the settings are invalid, and with
// StorageUnavailable if the store accepts no changes at the moment.
func (a *Access) CreateKey(ctx context.Context, s KeySpec) (Key, Secret, error) {
	if s.Kind != Live && s.Kind != Test {
		return Key{}, Secret{}, weir.Errorf(weir.InvalidRequest, "unknown kind of key %q: use %s or %s", Redacted(string(s.Kind)), Live, Test)
	}
	secret := newSecret(s.Kind)
	key, _, err := a.makeKey(ctx, s, secret.Reveal())
	if err != nil {
		return Key{}, Secret{}, err
	}
	return key, secret, nil
}

// ImportKey creates the record of a key that was generated elsewhere, for example in the
// configuration of a container. If the key already has a record, ImportKey returns that record
// unchanged: a revoked key stays revoked, and the scope in s is ignored. It fails with
// InvalidRequest for a key of another project, for the demo key, and for a string that does not
// have the form of a key. If the key already has a record, ImportKey works even while the store
// accepts no changes, so that a server with bootstrap keys can start on a full disk.
func (a *Access) ImportKey(ctx context.Context, s KeySpec, secret string) (Key, error) {
	kind, ok := kindOf(secret)
	if !ok {
		return Key{}, weir.Errorf(weir.InvalidRequest, "a key is %s", KeyForm)
	}
	if secret == DemoKey {
		return Key{}, weir.Errorf(weir.InvalidRequest, "the demo key is built in and cannot be imported")
	}
	s.Kind = kind
	key, _, err := a.makeKey(ctx, s, secret)
	if err == nil && key.Project != s.Project {
		err = weir.Errorf(weir.InvalidRequest, "key %s already belongs to another project", key.Masked)
	}
	if err != nil {
		return Key{}, err
	}
	return key, nil
}

// makeKey creates the record of a secret, or returns the existing one. It returns made == true
// if it created the record.
func (a *Access) makeKey(ctx context.Context, s KeySpec, secret string) (k Key, made bool, err error) {
	if err := a.checkSpec(ctx, s); err != nil {
		return Key{}, false, err
	}
	d := digestOf(secret)
	if e := a.withDigest(d); e != nil {
		return a.recordOf(e), false, nil
	}
	e, made, err := a.store(ctx, a.newKey(s, secret), d)
	if err != nil {
		return Key{}, false, err
	}
	return a.recordOf(e), made, nil
}

// newKey returns the record of a new key.
func (a *Access) newKey(s KeySpec, secret string) Key {
	k := Key{
		ID:          string(weir.NewStreamID()),
		Project:     s.Project,
		Kind:        s.Kind,
		Name:        s.Name,
		Masked:      masked(secret),
		Permissions: allPermissions,
		Streams:     slices.Compact(slices.Sorted(slices.Values(s.Streams))),
		CreatedAt:   a.steady.wallTime(),
	}
	if len(s.Permissions) > 0 {
		k.Permissions = slices.DeleteFunc(slices.Clone(allPermissions), func(p Permission) bool {
			return !slices.Contains(s.Permissions, p)
		})
	}
	if k.Streams == nil {
		k.Streams = []weir.StreamID{} // so that the JSON has [] instead of null
	}
	if s.RevokeAfter > 0 {
		at := k.CreatedAt + weir.Time(s.RevokeAfter*1000)
		k.RevokeAt = &at
	}
	return k
}

// store creates the document of a record, and returns the entry of that document in memory. If the
// document exists already, store leaves it unchanged and returns made == false.
func (a *Access) store(ctx context.Context, k Key, d digest) (e *entry, made bool, err error) {
	value, err := json.Marshal(k)
	if err != nil {
		return nil, false, err
	}
	// The record is created even if the caller gives up. The method store still waits for the
	// result, so that the audit log records it.
	_, err = a.docs.Create(context.WithoutCancel(ctx), d.document(k.Kind), value)
	made = err == nil
	if err != nil && !errors.Is(err, engine.ErrExists) {
		return nil, false, storeError("create a key", err)
	}
	e = a.withDigest(d)
	if e == nil { // another process has changed the document since
		return nil, false, fmt.Errorf("create a key: the document %s was deleted or cannot be read", d.document(k.Kind))
	}
	// The project may have been deleted since checkSpec. If the key was stored before that,
	// DeleteProject has revoked it. Otherwise this node knows of the deletion now, because it learns of
	// all changes in the order in which they are stored.
	if _, ok := a.Project(k.Project); made && !ok && k.Kind != Management {
		if _, err := a.Revoke(ctx, k.ID); err != nil {
			return nil, false, err
		}
		return nil, false, noProject(k.Project)
	}
	return e, made, nil
}

// checkSpec validates the settings of a new key.
func (a *Access) checkSpec(ctx context.Context, s KeySpec) error {
	if err := checkName("key", s.Name, 0); err != nil {
		return err
	}
	for _, p := range s.Permissions {
		if !slices.Contains(allPermissions, p) {
			return weir.Errorf(weir.InvalidRequest, "unknown permission %q: use read, publish or manage", Redacted(string(p)))
		}
	}
	if len(s.Streams) > maxStreams {
		return weir.Errorf(weir.InvalidRequest, "a key can be confined to at most %d streams, not %d", maxStreams, len(s.Streams))
	}
	for _, id := range s.Streams {
		if !weir.IsID(string(id)) {
			return weir.Errorf(weir.InvalidRequest, "confine a key to stream %q: %v", Redacted(string(id)), weir.ErrStreamID)
		}
	}
	if s.RevokeAfter < 0 || s.RevokeAfter > MaxRevokeAfter {
		return weir.Errorf(weir.InvalidRequest, "a key can revoke itself after 1 to %d seconds, not %d", MaxRevokeAfter, s.RevokeAfter)
	}
	if s.Project == DemoProject {
		return weir.Errorf(weir.InvalidRequest, "the demo project has only its built-in key")
	}
	_, ok := a.Project(s.Project)
	if !ok { // another node may have created the project a moment ago
		if err := a.docs.CatchUp(ctx); err != nil {
			return storeError("create a key", err)
		}
		_, ok = a.Project(s.Project)
	}
	if !ok {
		return noProject(s.Project)
	}
	return nil
}

func noProject(id weir.ProjectID) error {
	return fmt.Errorf("%w (%w)", weir.Errorf(weir.InvalidRequest, "there is no project %q", Redacted(string(id))), ErrNoProject)
}

// ErrNoProject is wrapped in the error of a call that creates a key in a project that does not
// exist.
var ErrNoProject = errors.New("no such project")

// Keys returns the keys of a project, or of all projects if project is empty, oldest first. It
// includes revoked keys that are not forgotten yet (see Forget).
func (a *Access) Keys(project weir.ProjectID) []Key {
	a.mu.RLock()
	defer a.mu.RUnlock()
	list := []Key{}
	for _, e := range a.keys.All() {
		if project == "" || e.record.Project == project {
			list = append(list, e.current())
		}
	}
	slices.SortFunc(list, func(k, l Key) int {
		return cmp.Or(cmp.Compare(k.CreatedAt, l.CreatedAt), cmp.Compare(k.ID, l.ID))
	})
	return list
}

// Key returns the key with this id.
func (a *Access) Key(id string) (Key, bool) {
	a.mu.RLock()
	defer a.mu.RUnlock()
	if e := a.keys.Get(id); e != nil {
		return e.current(), true
	}
	return Key{}, false
}

// Grant returns the grant of the key with this id.
func (a *Access) Grant(id string) (*Grant, bool) {
	if e := a.find(id); e != nil {
		return e.grant, true
	}
	return nil, false
}

// Taken returns the number of requests that each key made since the process started, by the key's
// id. It leaves out keys that revoke themselves: there can be a million of them in a day, and the
// dashboard stores these numbers.
func (a *Access) Taken() map[string]uint64 {
	a.mu.RLock()
	defer a.mu.RUnlock()
	all := map[string]uint64{}
	for id, e := range a.keys.All() {
		if n := e.grant.taken.Load(); n > 0 && e.record.RevokeAt == nil {
			all[id] = n
		}
	}
	return all
}

func (a *Access) recordOf(e *entry) Key {
	a.mu.RLock()
	defer a.mu.RUnlock()
	return e.current()
}

// current returns the record, with two values that the stored record may lack: the current last
// use, and the revocation of a key that has revoked itself (only Revoke stores it). Called with
// Access.mu held.
func (e *entry) current() Key {
	k := e.record
	if k.RevokedAt == nil && k.RevokeAt != nil && e.grant.hasEnded() {
		k.RevokedAt = k.RevokeAt
	}
	if used := e.grant.lastUsed(); used != 0 {
		k.LastUsedAt = &used
	}
	return k
}

// Revoke revokes a key permanently. When it returns, the revocation is durable, Authenticate
// refuses the key, and the key's grant has ended (D18). Revoking a revoked key changes nothing.
// Revoke fails with NotFound if there is no such key.
func (a *Access) Revoke(ctx context.Context, id string) (Key, error) {
	if id == DemoKeyID {
		return Key{}, weir.Errorf(weir.InvalidRequest, "the demo key is built in: switch the demo off instead")
	}
	return a.revoke(ctx, "key", id, a.find)
}

// revoke revokes the key or token that the function find returns. The parameter "what" is the
// word that errors use for it: "key" or "token".
func (a *Access) revoke(ctx context.Context, what, id string, find func(id string) *entry) (Key, error) {
	e := find(id)
	if e == nil { // another node may have created it a moment ago
		if err := a.docs.CatchUp(ctx); err != nil {
			return Key{}, storeError("revoke a "+what, err)
		}
		e = find(id)
	}
	if e == nil {
		return Key{}, weir.Errorf(weir.NotFound, "there is no %s with the id %q", what, Redacted(id))
	}
	now := a.steady.wallTime()
	// The key is revoked even if the caller gives up. Revoke still waits for the store, so that the
	// audit log records the result.
	err := a.update(context.WithoutCancel(ctx), e, func(k *Key) bool {
		switch {
		case k.RevokedAt == nil:
			k.RevokedAt = &now
		case k.RevokedAt == k.RevokeAt:
			// The key has revoked itself (see current). Its RevokedAt is not stored yet: store it.
		default:
			return false
		}
		return true
	})
	if errors.Is(err, engine.ErrNotFound) {
		return Key{}, weir.Errorf(weir.NotFound, "the %s with the id %q was deleted", what, id)
	}
	if err != nil {
		return Key{}, storeError("revoke "+what+" "+id, err)
	}
	return a.recordOf(e), nil
}

func (a *Access) find(id string) *entry {
	a.mu.RLock()
	defer a.mu.RUnlock()
	return a.keys.Get(id)
}

// update changes the stored record of a key. When the store reports the change, documentChanged
// updates the record in memory. The function change modifies the record, or returns false if there
// is nothing to change. If another caller or process changed the record first, update calls change
// again with the new record.
func (a *Access) update(ctx context.Context, e *entry, change func(*Key) bool) error {
	for tried := engine.Revision(0); ; {
		a.mu.RLock()
		record, revision := e.current(), e.revision
		a.mu.RUnlock()
		if !change(&record) {
			return nil
		}
		if revision == tried {
			// The last attempt conflicted with a newer document, but the record in memory is still
			// the same. So the newer document could not be read, and another attempt would fail too.
			return engine.ErrConflict
		}
		value, err := json.Marshal(record)
		if err != nil {
			return err
		}
		if _, err = a.docs.Update(ctx, e.digest.document(record.Kind), value, revision); !errors.Is(err, engine.ErrConflict) {
			return err
		}
		tried = revision
	}
}
