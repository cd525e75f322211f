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

// Sessions exist in memory only. So an operator can sign in while the store refuses writes, and the
// credentials of a session are never on disk. A restart ends all sessions.

const (
	// idleFor is how long an unused session lasts. An open, visible page keeps its session in use.
	idleFor = 30 * time.Minute
	// lastsFor is how long a session lasts at most.
	lastsFor = 12 * time.Hour
	// maxSessions is the maximum number of sessions. When a further session begins, the least
	// recently used one ends.
	maxSessions = 200
)

// session is one signed-in browser.
type session struct {
	ID      string // identifies the session on the account page; it is not a credential
	From    string // address of the client that signed in
	Agent   string // User-Agent of the browser
	Created time.Time

	ended  chan struct{} // closed when the session ends
	ending sync.Once

	mu      sync.Mutex
	seen    time.Time
	secrets map[string]string // new keys that were not shown yet, by key ID, and a new management token
	notice  *notice
}

// notice is a message to show on the next page.
type notice struct {
	Bad  bool
	Text string
}

type digest [sha256.Size]byte

// sessions holds all sessions that have not ended.
type sessions struct {
	now func() time.Time

	mu  sync.Mutex
	all map[digest]*session // by the digest of the token in the cookie
}

// begin starts a session and returns the token for its cookie. The token has 256 random bits. The
// server keeps only a digest of it.
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

// dropStalest ends the least recently used session. The caller holds s.mu.
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

// find returns the session of a token and marks it as used. It returns nil if there is no such
// session or it has expired.
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

// sweep ends expired sessions.
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

// endAll ends every session except the given one, which may be nil, and returns how many it ended.
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

// list returns all sessions, most recently used first.
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

// over reports whether the session has expired.
func (e *session) over(now time.Time) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return now.Sub(e.Created) >= lastsFor || now.Sub(e.seen) >= idleFor
}

// LastSeen returns when the session was last used.
func (e *session) LastSeen() time.Time {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.seen
}

// keep stores a new key in the session until reveal returns it.
func (e *session) keep(id, secret string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.secrets[id] = secret
}

// reveal returns the secret of a new key on the first call, and the empty string afterwards.
func (e *session) reveal(id string) string {
	e.mu.Lock()
	defer e.mu.Unlock()
	secret := e.secrets[id]
	delete(e.secrets, id)
	return secret
}

// say sets the message for the next page.
func (e *session) say(bad bool, text string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.notice = &notice{bad, text}
}

// said returns the message for the next page and clears it.
func (e *session) said() *notice {
	e.mu.Lock()
	defer e.mu.Unlock()
	n := e.notice
	e.notice = nil
	return n
}

// Names of the session cookie. Browsers accept a cookie with the __Host- prefix only over TLS and
// only for this exact host. So neither another subdomain nor a plain HTTP response can set the
// cookie.
const (
	cookieName       = "weir_session"
	secureCookieName = "__Host-weir_session"
)

// cameByTLS reports whether the browser connected over TLS, to this server or to a proxy in front
// of it. A client that forges the header X-Forwarded-Proto gains nothing: it gets a cookie that its
// own browser does not send back.
func cameByTLS(r *http.Request) bool {
	proto, _, _ := strings.Cut(r.Header.Get("X-Forwarded-Proto"), ",") // the first entry comes from the proxy closest to the browser
	return r.TLS != nil || strings.EqualFold(strings.TrimSpace(proto), "https")
}

// isSecure reports whether the cookie is restricted to TLS. It is if the browser connected over TLS,
// or if the base URL is HTTPS.
func (d *Dashboard) isSecure(r *http.Request) bool { return cameByTLS(r) || d.base.Scheme == "https" }

// cookie returns the session cookie with a token. An empty token makes the browser delete the
// cookie.
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

// tokenOf returns the token in the session cookie of a request. It is empty if there is no cookie.
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
