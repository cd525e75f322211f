package api

import "net/http"

// version serves GET /v1/version. It sends the version, commit and build time. It needs no key and
// never refuses a request, but its requests count towards the rate limit of the client's address
// (D23).
func (c *call) version() error { return c.answer(http.StatusOK, c.h.version) }

func versionObject(o Options) []byte {
	b := append([]byte(nil), `{"version":`...)
	b = appendString(b, o.Version)
	b = append(b, `,"commit":`...)
	b = appendString(b, o.Commit)
	b = append(b, `,"built":"`...)
	b = o.Built.AppendFormat(b)
	return append(b, `"}`...)
}
