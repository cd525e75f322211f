package dashboard

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"time"
	"unicode/utf8"
)

// flash is what an action leaves for the next page: a message, and a new key, which is shown once.
// The browser keeps it in a cookie, because a load balancer may send the next request to another
// node. The cookie is encrypted and signed with a key derived from the token of the session. So no
// other site can set a message, and the cookie is worthless without its session.
type flash struct {
	Notice *notice `json:"notice,omitempty"`
	ID     string  `json:"id,omitempty"` // the id of a new key, or newToken
	Secret string  `json:"secret,omitempty"`
	Node   string  `json:"node,omitempty"` // the node that took the action; empty for a single server
}

// notice is a message to show on the next page.
type notice struct {
	Bad  bool   `json:"bad,omitempty"`
	Text string `json:"text"`
}

const (
	flashName       = "weir_flash"
	secureFlashName = "__Host-weir_flash"
	// flashLasts is how long the browser keeps the cookie. The next page usually follows at once.
	flashLasts = 10 * time.Minute
	// maxNotice is the length of the longest message in bytes of JSON, where one character may take
	// six bytes. Browsers ignore cookies of more than 4096 bytes.
	maxNotice = 2000
)

// sealing returns the cipher for the cookie of a session.
func sealing(token string) cipher.AEAD {
	key := sha256.Sum256([]byte("flash of a session\x00" + token))
	block, err := aes.NewCipher(key[:])
	if err != nil {
		panic(err) // the key has a valid length
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		panic(err) // AES has the block size that GCM needs
	}
	return aead
}

// readFlash reads what the last action left. The result is empty if the cookie is missing, or was
// not made for this session.
func (v *visit) readFlash() (f flash) {
	name := flashName
	if v.isSecure(v.r) {
		name = secureFlashName
	}
	c, err := v.r.Cookie(name)
	if err != nil {
		return flash{}
	}
	sealed, err := base64.RawURLEncoding.DecodeString(c.Value)
	aead := sealing(v.token)
	if err != nil || len(sealed) < aead.NonceSize() {
		return flash{}
	}
	plain, err := aead.Open(nil, sealed[:aead.NonceSize()], sealed[aead.NonceSize():], nil)
	if err != nil || json.Unmarshal(plain, &f) != nil {
		return flash{}
	}
	return f
}

// writeFlash sets the cookie. If there is nothing to show, the browser deletes the cookie.
func (v *visit) writeFlash(f flash) error {
	c := v.cookie(v.r, "")
	if f != (flash{}) {
		plain, err := json.Marshal(f)
		if err != nil {
			return err
		}
		aead := sealing(v.token)
		nonce := make([]byte, aead.NonceSize())
		rand.Read(nonce) // never returns an error: it crashes the program instead
		c.Value, c.MaxAge = base64.RawURLEncoding.EncodeToString(aead.Seal(nonce, nonce, plain, nil)), int(flashLasts/time.Second)
	}
	c.Name, c.SameSite = flashName, http.SameSiteStrictMode
	if c.Secure {
		c.Name = secureFlashName
	}
	http.SetCookie(v.w, c)
	return nil
}

// keep leaves a new key for the next page.
func (v *visit) keep(id, secret string) { v.next.ID, v.next.Secret = id, secret }

// say leaves a message for the next page.
func (v *visit) say(bad bool, text string) {
	v.next.Notice = &notice{bad, cut(text, maxNotice)}
}

// cut returns the beginning of a text that takes at most n bytes as JSON.
func cut(text string, n int) string {
	for i := 0; i < len(text); {
		_, size := utf8.DecodeRuneInString(text[i:])
		quoted, err := json.Marshal(text[i : i+size])
		if n -= len(quoted) - len(`""`); err != nil || n < 0 {
			return text[:i]
		}
		i += size
	}
	return text
}

// reveal returns the secret of a new key the first time its page is seen, and the empty string
// otherwise.
func (v *visit) reveal(id string) string {
	if !v.seen() || v.left.ID != id {
		return ""
	}
	secret := v.left.Secret
	v.left.ID, v.left.Secret = "", ""
	return secret
}

// said returns the message that the last action left for this page. It makes the browser forget
// what this page shows, including a new key, so the caller must call reveal first.
func (v *visit) said() (*notice, error) {
	if !v.seen() {
		return nil, nil
	}
	text := v.left.Notice
	v.left.Notice = nil
	if v.left.ID == "" {
		v.left.Node = ""
	}
	if v.left == v.readFlash() {
		return nil, nil
	}
	return text, v.writeFlash(v.left)
}

// seen reports whether the client gets the body of the response. The client of a HEAD request does
// not, so such a request must not use up a key or a message that is shown only once.
func (v *visit) seen() bool { return v.r.Method != http.MethodHead }

// follow makes this node learn what the last action of the browser changed, if the action took
// place on another node. Otherwise the page of a new key could be missing for a moment.
func (v *visit) follow() {
	if v.left.Node == "" || v.left.Node == v.Node || v.Lease() != nil {
		return
	}
	if err := v.Access.CatchUpTogether(); err != nil {
		v.Logger.Debug("failed to catch up with an action on another node", "node", v.left.Node, "error", err)
	}
}
