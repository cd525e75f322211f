package dashboard

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"strings"
	"time"

	"weir"
)

// A browser that has signed in keeps a mark: a cookie with a random id and a signature. The mark
// gives access to no page. It only changes how wrong passwords are counted: per browser for
// browsers with a mark, per address for all others. So an attacker who shares the address of an
// operator, for example behind a proxy that the server does not know, cannot lock that operator
// out.
//
// The signing key is derived from the stored hash of the password. Marks are therefore valid on
// every node and after a restart, and become invalid when the password changes.

const (
	markName       = "weir_browser"
	secureMarkName = "__Host-weir_browser"
	markLasts      = 365 * 24 * time.Hour
)

// signature signs the id of a browser. It is empty if no password is set.
func (d *Dashboard) signature(id string) string {
	hash, _ := d.account.hash()
	if hash == "" {
		return ""
	}
	key := sha256.Sum256([]byte("mark of a browser\x00" + hash))
	mac := hmac.New(sha256.New, key[:])
	mac.Write([]byte(id))
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// browserOf returns the id of a browser with a valid mark, and the empty string for all others.
func (d *Dashboard) browserOf(r *http.Request) string {
	name := markName
	if d.isSecure(r) {
		name = secureMarkName
	}
	c, err := r.Cookie(name)
	if err != nil {
		return ""
	}
	id, signed, _ := strings.Cut(c.Value, ".")
	if want := d.signature(id); id == "" || want == "" || !hmac.Equal([]byte(signed), []byte(want)) {
		return ""
	}
	return id
}

// mark gives a mark to a browser that has sent the right password, or renews the mark that the
// browser has.
func (v *visit) mark() {
	id := v.browserOf(v.r)
	if id == "" {
		id = weir.Base62(22)
	}
	c := v.cookie(v.r, id+"."+v.signature(id))
	c.Name, c.MaxAge, c.SameSite = markName, int(markLasts/time.Second), http.SameSiteStrictMode
	if c.Secure {
		c.Name = secureMarkName
	}
	http.SetCookie(v.w, c)
}

// attempt counts an attempt before the password is checked. It returns how long the client must
// wait; 0 means that the caller may check the password. If the password is right, the caller must
// call the function succeeded.
func (v *visit) attempt() (wait time.Duration, succeeded func()) {
	if id := v.browserOf(v.r); id != "" {
		return v.throttle.tryBrowser(id, v.client()), func() { v.throttle.browserSucceeded(id) }
	}
	from := v.client()
	return v.throttle.try(from), func() { v.throttle.succeeded(from) }
}
