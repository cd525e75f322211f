package dashboard

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"weir"
)

// Sessions are kept in memory alone: so that an operator can sign in on a store that takes no writes, and so that nothing that
// lets anybody in is ever stored. A restart signs everybody out.

const (
	// idleFor is how long a session lasts that nobody uses. A page that is seen and refreshes itself uses it.
	idleFor = 30 * time.Minute
	// lastsFor is how long a session lasts at most.
	lastsFor = 12 * time.Hour
	// maxSessions bounds how many there are; the one that was not used for longest goes first.
	maxSessions = 200
)

// session is somebody who signed in.
type session struct {
	ID      string // for people to tell sessions apart; it lets nobody in
	From    string // the address that signed in
	Agent   string // what the browser calls itself
	Created time.Time

	ended  chan struct{} // closed when it is over
	ending sync.Once

	mu      sync.Mutex
	seen    time.Time
	tails   int               // open subscriptions, which keep it in use
	secrets map[string]string // keys that were made and not shown yet, by id
	notice  *notice
}

// notice is something to be said on the next page.
type notice struct {
	Bad  bool
	Text string
}

type digest [sha256.Size]byte

// sessions are those that are not over.
type sessions struct {
	now func() time.Time

	mu  sync.Mutex
	all map[digest]*session // by the digest of what the cookie holds
}

// begin makes a session, and returns what its cookie holds: 256 random bits.
func (s *sessions) begin(from, agent string) (token string, made *session) {
	token = weir.Base62(43)
	sum := sha256.Sum256([]byte(token))
	if len(agent) > 200 {
		agent = agent[:200]
	}
	now := s.now()
	made = &session{
		ID: hex.EncodeToString(sum[:4]), From: from, Agent: agent, Created: now, seen: now,
		ended: make(chan struct{}), secrets: map[string]string{},
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.all) >= maxSessions {
		s.dropStalest()
	}
	s.all[sum] = made
	return token, made
}

// dropStalest ends the session that was not used for longest. The lock is held.
func (s *sessions) dropStalest() {
	var stalest digest
	var old *session
	for d, e := range s.all {
		if old == nil || e.LastSeen().Before(old.LastSeen()) {
			stalest, old = d, e
		}
	}
	delete(s.all, stalest)
	old.end()
}

// find returns the session of a cookie, and notes that it is used; nil when there is none, or it is over.
func (s *sessions) find(token string) *session {
	if token == "" {
		return nil
	}
	sum := sha256.Sum256([]byte(token))
	now := s.now()
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.all[sum]
	if e == nil {
		return nil
	}
	if e.over(now) {
		delete(s.all, sum)
		e.end()
		return nil
	}
	e.mu.Lock()
	e.seen = now
	e.mu.Unlock()
	return e
}

// sweep ends the sessions that are over.
func (s *sessions) sweep() {
	now := s.now()
	s.mu.Lock()
	defer s.mu.Unlock()
	for d, e := range s.all {
		if e.over(now) {
			delete(s.all, d)
			e.end()
		}
	}
}

// endOne ends a session.
func (s *sessions) endOne(which *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for d, e := range s.all {
		if e == which {
			delete(s.all, d)
		}
	}
	which.end()
}

// endAll ends every session but one, and returns how many.
func (s *sessions) endAll(but *session) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for d, e := range s.all {
		if e != but {
			delete(s.all, d)
			e.end()
			n++
		}
	}
	return n
}

// list is all sessions, the last used one first.
func (s *sessions) list() []*session {
	s.sweep()
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []*session
	for _, e := range s.all {
		all = append(all, e)
	}
	slices.SortFunc(all, func(a, b *session) int { return b.LastSeen().Compare(a.LastSeen()) })
	return all
}

func (e *session) end() { e.ending.Do(func() { close(e.ended) }) }

func (e *session) over(now time.Time) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return now.Sub(e.Created) >= lastsFor || e.tails == 0 && now.Sub(e.seen) >= idleFor
}

// LastSeen is when it was last used.
func (e *session) LastSeen() time.Time {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.seen
}

// tail notes a subscription that begins (1) or ends (-1).
func (e *session) tail(n int, now time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.tails += n
	e.seen = now
}

// keep holds a key until it is shown.
func (e *session) keep(id, secret string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.secrets[id] = secret
}

// reveal returns a key that was not shown yet, once.
func (e *session) reveal(id string) string {
	e.mu.Lock()
	defer e.mu.Unlock()
	secret := e.secrets[id]
	delete(e.secrets, id)
	return secret
}

// say has something said on the next page.
func (e *session) say(bad bool, text string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.notice = &notice{bad, text}
}

// said takes what was to be said.
func (e *session) said() *notice {
	e.mu.Lock()
	defer e.mu.Unlock()
	n := e.notice
	e.notice = nil
	return n
}

// The names of the cookie. Over TLS the prefix has browsers see to it that nobody else has set it.
const (
	cookieName       = "weir_session"
	secureCookieName = "__Host-weir_session"
)

// cameByTLS tells whether the browser did. Who claims so falsely only gets a cookie that it will not send.
func cameByTLS(r *http.Request) bool {
	proto, _, _ := strings.Cut(r.Header.Get("X-Forwarded-Proto"), ",") // of several proxies, the one that the browser came to
	return r.TLS != nil || strings.EqualFold(strings.TrimSpace(proto), "https")
}

// isSecure tells whether the cookie is for TLS alone: because the browser came by it, or because everybody should.
func (d *Dashboard) isSecure(r *http.Request) bool { return cameByTLS(r) || d.base.Scheme == "https" }

// cookie is the session's, with what it holds; empty: the browser is to forget it.
func (d *Dashboard) cookie(r *http.Request, token string) *http.Cookie {
	c := &http.Cookie{Name: cookieName, Value: token, Path: "/", HttpOnly: true, SameSite: http.SameSiteLaxMode}
	if d.isSecure(r) {
		c.Name, c.Secure = secureCookieName, true
	}
	if token == "" {
		c.MaxAge = -1
	}
	return c
}

// tokenOf is what the session's cookie of a request holds.
func (d *Dashboard) tokenOf(r *http.Request) string {
	name := cookieName
	if d.isSecure(r) {
		name = secureCookieName
	}
	c, err := r.Cookie(name)
	if err != nil {
		return ""
	}
	return c.Value
}
