package dashboard

import (
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"weir"
	"weir/internal/engine"
)

// Sessions are valid on every node that shares the store, and stay valid after a restart. Each has
// a document (see session_stored.go) with a digest of its token, so the store holds no credential.
// A session whose document could not be stored is valid on this node only. So an operator can sign
// in while the store refuses writes.

const (
	// idleFor is how long an unused session lasts. An open, visible page keeps its session in use.
	idleFor = 30 * time.Minute
	// lastsFor is how long a session lasts at most.
	lastsFor = 12 * time.Hour
	// maxSessions is the maximum number of sessions. When a further session begins, the least
	// recently used one ends.
	maxSessions = 200
	// tokenLength is the length of a session token. A token has 256 random bits.
	tokenLength = 43
)

// session is one signed-in browser.
type session struct {
	ID      string // identifies the session on the account page; it is not a credential
	From    string // address of the client that signed in
	Agent   string // User-Agent of the browser
	Created time.Time

	digest  digest          // of the token in the cookie
	account engine.Revision // revision of the account whose password the client sent
	here    bool            // the session began on this node, and the node has not restarted since

	mu       sync.Mutex
	seen     time.Time       // the last use that this node knows of
	stored   time.Time       // the last use that the document shows
	revision engine.Revision // revision of the document; 0 if this node knows of no document
	ended    bool            // the session has ended, and its document may still have to be deleted
}

type digest [sha256.Size]byte

// sessions holds all sessions that have not ended, and those whose documents must still be deleted.
type sessions struct {
	docs    engine.Documents
	account *account
	catchUp func() error // waits until this node knows the sessions of other nodes
	lease   func() error // Options.Lease
	writes  func() bool  // Options.Writes
	logger  *slog.Logger
	now     func() time.Time

	mu  sync.Mutex // never held during a call to the store, because the store calls the method follow, which locks mu
	all map[digest]*session
}

// begin starts a session and returns the token for its cookie. The parameter account is the
// revision of the account. The server keeps only a digest of the token.
func (s *sessions) begin(account engine.Revision, from, agent string) (token string, made *session) {
	token = weir.Base62(tokenLength)
	sum := digest(sha256.Sum256([]byte(token)))
	if len(agent) > 200 {
		agent = agent[:200]
	}
	now := s.now()
	made = &session{
		ID: sum.name(), From: from, Agent: agent, Created: now, digest: sum, account: account, here: true, seen: now,
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all[sum] = made
	s.trim(account, now)
	return token, made
}

// name returns the part of a digest that identifies a session on the account page.
func (d digest) name() string { return hex.EncodeToString(d[:4]) }

// trim ends the least recently used sessions if there are more than maxSessions. The caller holds
// s.mu.
func (s *sessions) trim(account engine.Revision, now time.Time) {
	live := s.live(account, now)
	for len(live) > maxSessions {
		live[len(live)-1].end()
		live = live[:len(live)-1]
	}
}

// live returns the sessions that are valid, most recently used first. The parameter account is the
// current revision of the account. The caller holds s.mu.
func (s *sessions) live(account engine.Revision, now time.Time) (all []*session) {
	for _, e := range s.all {
		if e.isLive(account, now) {
			all = append(all, e)
		}
	}
	slices.SortFunc(all, func(a, b *session) int { return b.LastSeen().Compare(a.LastSeen()) })
	return all
}

// find returns the session of a token and marks it as used. It returns nil if the session is not
// valid, or if it began on another node while this node is cut off (isCut). The result known is
// false if this node has never heard of the session, or has forgotten it.
func (s *sessions) find(token string, account engine.Revision, isCut bool) (e *session, known bool) {
	sum := sha256.Sum256([]byte(token))
	now := s.now()
	s.mu.Lock()
	defer s.mu.Unlock()
	e = s.all[sum]
	if e == nil {
		return nil, false
	}
	if !e.isLive(account, now) || isCut && !e.here {
		return nil, true
	}
	e.mu.Lock()
	e.seen = now
	e.mu.Unlock()
	return e, true
}

// endOthers ends every session except the given one, and returns how many valid ones it ended.
func (s *sessions) endOthers(account engine.Revision, but *session) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, e := range s.live(account, s.now()) {
		if e != but {
			e.end()
			n++
		}
	}
	return n
}

// list returns all valid sessions, most recently used first.
func (s *sessions) list(account engine.Revision) []*session {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.live(account, s.now())
}

// end ends the session on this node. The method keep deletes the document.
func (e *session) end() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.ended = true
}

// isLive reports whether the session is valid: it has neither ended nor expired, and the password
// has not changed since it began.
func (e *session) isLive(account engine.Revision, now time.Time) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return !e.ended && e.account == account && now.Sub(e.Created) < lastsFor && now.Sub(e.seen) < idleFor
}

// LastSeen returns when the session was last used. If it is used on another node, the result may be
// some minutes old.
func (e *session) LastSeen() time.Time {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.seen
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
