package dashboard

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"weir"
	"weir/internal/engine"
)

// A session is written when it begins, when it ends, and every few minutes while it is in use. A
// node that receives a request with an unknown token first catches up with the other nodes.

const (
	// storeUseEvery is how far the stored time of the last use may lag behind while a session is in
	// use. It must be much shorter than idleFor, because other nodes know only the last use in the
	// document, and end the session idleFor after it.
	storeUseEvery = 4 * time.Minute
	// sessionPatience is how long a request waits for the store to write sessions. Without this
	// limit, a sign-in on a node that is cut off would take much longer.
	sessionPatience = 3 * time.Second
)

// sessionRecord is the stored form of a session. Nodes of another version read it as well, so
// fields may be added, but not changed or removed.
type sessionRecord struct {
	From      string          `json:"from"`
	Agent     string          `json:"agent"`
	CreatedAt weir.Time       `json:"created_at"`
	SeenAt    weir.Time       `json:"seen_at"`
	Account   engine.Revision `json:"account"` // a session ends when the account gets another revision
}

// document returns the key of the document of a session.
func (e *session) document() string { return SessionPrefix + hex.EncodeToString(e.digest[:]) }

// follow applies a change of a stored session. A session that has ended on this node stays ended
// even if another node has written its document since. If the document cannot be read, the session
// is not valid, and sessions.keep deletes the document.
func (s *sessions) follow(c engine.Change) error {
	var sum digest
	if n, err := hex.Decode(sum[:], []byte(strings.TrimPrefix(c.Key, SessionPrefix))); err != nil || n != len(sum) {
		return fmt.Errorf("the key is malformed")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.all[sum]
	if c.Deleted {
		if e != nil {
			e.end() // a request in flight may still hold the session
			delete(s.all, sum)
		}
		return nil
	}
	var record sessionRecord
	err := json.Unmarshal(c.Value, &record)
	if err != nil {
		record = sessionRecord{}
	}
	seen := record.SeenAt.Std()
	if e == nil {
		e = &session{
			ID: sum.name(), From: record.From, Agent: record.Agent, Created: record.CreatedAt.Std(),
			digest: sum, account: record.Account, seen: seen,
		}
		s.all[sum] = e
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.ended = e.ended || err != nil
	e.revision, e.stored = c.Revision, seen
	if seen.After(e.seen) {
		e.seen = seen
	}
	return err
}

// of returns the valid session of a token, or nil. It marks the session as used.
//
// A node that is cut off from the others does not learn which sessions have ended. It accepts only
// sessions that began on it: a person who knows the password can still sign in there.
func (s *sessions) of(token string) *session {
	if len(token) != tokenLength {
		return nil
	}
	_, account := s.account.hash()
	isCut := s.lease() != nil
	e, known := s.find(token, account, isCut)
	if !known && s.docs.Shared() && !isCut {
		if s.catchUp() != nil {
			return nil
		}
		_, account = s.account.hash()
		e, _ = s.find(token, account, false)
	}
	return e
}

// store stores a session that has just begun. If that fails, the session is valid on this node
// only, until sessions.keep has stored it.
func (s *sessions) store(ctx context.Context, e *session) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), sessionPatience)
	defer cancel()
	if err := s.write(ctx, e); err != nil {
		s.logger.Warn("failed to store a session; for now it is valid only on this node", "session", e.ID, "error", err)
	}
}

// write stores a session with its last use.
func (s *sessions) write(ctx context.Context, e *session) error {
	e.mu.Lock()
	seen, revision := e.seen, e.revision
	e.mu.Unlock()
	value, err := json.Marshal(sessionRecord{
		From: e.From, Agent: e.Agent, CreatedAt: weir.TimeOf(e.Created), SeenAt: weir.TimeOf(seen), Account: e.account,
	})
	if err != nil {
		return err
	}
	if revision == 0 {
		_, err = s.docs.Create(ctx, e.document(), value)
	} else {
		_, err = s.docs.Update(ctx, e.document(), value, revision)
	}
	if errors.Is(err, engine.ErrExists) || errors.Is(err, engine.ErrConflict) || errors.Is(err, engine.ErrNotFound) {
		return nil // an earlier attempt was stored, or another node has stored a use or ended the session
	}
	return err
}

// spread ends sessions on all nodes after the caller has ended them on this node.
func (s *sessions) spread(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), sessionPatience)
	defer cancel()
	_, account := s.account.hash()
	over, _ := s.unwritten(account)
	if err := s.removeAll(ctx, over); err != nil {
		s.logger.Warn("failed to delete sessions that have ended; the next attempt is in a minute", "error", err)
	}
}

func (s *sessions) removeAll(ctx context.Context, over []*session) error {
	for _, e := range over {
		if err := s.remove(ctx, e); err != nil {
			return fmt.Errorf("delete session %s: %w", e.ID, err)
		}
	}
	return nil
}

// keep writes what the store does not know yet: it deletes the documents of sessions that
// are over, and stores the last use of the others. It stops at the first error, and after
// sessionPatience: the next call does the rest.
func (s *sessions) keep(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, sessionPatience)
	defer cancel()
	_, account := s.account.hash()
	over, used := s.unwritten(account)
	if err := s.removeAll(ctx, over); err != nil {
		return err
	}
	if !s.writes() {
		return nil // an update would use up the space that is reserved for revoking keys
	}
	for _, e := range used {
		if err := s.write(ctx, e); err != nil {
			return fmt.Errorf("store session %s: %w", e.ID, err)
		}
	}
	return nil
}

// unwritten returns the sessions that are over, and those whose last use must be stored. Sessions
// that were ended on purpose come first, because other nodes may still accept them. The other
// sessions that are over are not valid on any node.
func (s *sessions) unwritten(account engine.Revision) (over, used []*session) {
	now := s.now()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.trim(account, now)
	for _, e := range s.all {
		isLive := e.isLive(account, now)
		e.mu.Lock()
		switch {
		case !isLive && e.ended:
			over = slices.Insert(over, 0, e)
		case !isLive:
			over = append(over, e)
		case e.revision == 0 || e.seen.Sub(e.stored) >= storeUseEvery:
			used = append(used, e)
		}
		e.mu.Unlock()
	}
	return over, used
}

// remove deletes the document of a session that is over. When the store reports the deletion, the
// session is removed from memory. If the session has expired, the deletion takes place only if no
// other node has stored a use of the session since.
func (s *sessions) remove(ctx context.Context, e *session) error {
	e.mu.Lock()
	isStored, revision := e.revision != 0, e.revision
	if e.ended {
		revision = 0 // delete the document no matter what other nodes have written
	}
	e.mu.Unlock()
	err := s.docs.Delete(ctx, e.document(), revision)
	if errors.Is(err, engine.ErrConflict) {
		return nil
	}
	if !errors.Is(err, engine.ErrNotFound) {
		return err
	}
	// There is no document. If there never was one, a write whose outcome is unknown may still
	// create it. The session stays in memory until it would have expired, so that
	// sessions.keep deletes such a document too.
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all[e.digest] == e && (isStored || s.now().Sub(e.Created) >= lastsFor) {
		delete(s.all, e.digest)
	}
	return nil
}
