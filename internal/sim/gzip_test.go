package sim

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net/http"
)

// leastZipped is the size of the smallest response to a GET request that is compressed (D37).
const leastZipped = 1 << 10

// encodings are values of Accept-Encoding, and whether they ask for gzip.
var encodings = []struct {
	value string
	gzip  bool
}{{"gzip", true}, {"br;q=1, gzip;q=0.5", true}, {"gzip;q=0, br", false}, {"identity", false}}

// mayZip perhaps adds Accept-Encoding to the header of a request. It reports whether the header asks
// for gzip.
func (c *client) mayZip(h http.Header) bool {
	if !c.w.has("gzip") || c.rng.IntN(2) == 0 {
		return false
	}
	e := encodings[c.rng.IntN(len(encodings))]
	h.Set("Accept-Encoding", e.value)
	return e.gzip
}

// unzip replaces the body of a response to a GET request by the uncompressed body. The response must
// be compressed if the client asked for compression, unless it is short. A short response may be
// compressed too: a page becomes short if its batches are evicted while it is being sent.
func (x *exchange) unzip(asked bool) error {
	zipped := x.header.Get("Content-Encoding") == "gzip"
	if zipped {
		u := unzipper{}
		text, err := u.add(x.got.Bytes())
		if err != nil || !u.whole {
			return fmt.Errorf("a compressed response is broken: %v", err)
		}
		x.got = *bytes.NewBuffer(text)
	}
	if n := x.got.Len(); (zipped && !asked || asked && !zipped && n >= leastZipped) && x.status == 200 {
		return fmt.Errorf("response of %d bytes: compressed is %v, and the client asked for compression: %v", n, zipped, asked)
	}
	return nil
}

// unzipper uncompresses a response that arrives in pieces.
type unzipper struct {
	raw   []byte
	zip   gzip.Reader
	given int  // number of bytes that the method add has returned
	whole bool // the response is complete
	ended bool // the last frame says that nothing more comes
}

// add adds a piece, and returns the text that can be uncompressed now and could not before.
func (u *unzipper) add(piece []byte) (text []byte, err error) {
	u.raw = append(u.raw, piece...)
	rest := bytes.NewReader(u.raw)
	if err := u.zip.Reset(rest); err != nil {
		return nil, err
	}
	u.zip.Multistream(false)
	all, err := io.ReadAll(&u.zip)
	if u.whole = err == nil; !u.whole && !errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, err
	}
	if u.whole && rest.Len() > 0 {
		return nil, fmt.Errorf("%d bytes follow the end of the gzip member", rest.Len())
	}
	text, u.given = all[u.given:], len(all)
	return text, nil
}

// wholePiece is the size of the pieces in which the server sends a long response. A piece of this
// size may end within a frame.
const wholePiece = 64 << 10

// unzipFrames returns a function that uncompresses frames and passes them to the function take. The
// server must not hold back a part of a frame until the next piece.
func (u *unzipper) unzipFrames(c *client, take func([]byte) bool) func([]byte) bool {
	return func(b []byte) bool {
		text, err := u.add(b)
		if err == nil && !u.whole && len(b) != wholePiece && !bytes.HasSuffix(text, []byte("\n\n")) {
			err = fmt.Errorf("a frame is held back after %q", text)
		}
		if err != nil {
			c.w.violation("client %d: compressed subscription: %v", c.n, err)
			return false
		}
		u.ended = bytes.Contains(text, []byte("event: end\n"))
		return take(text)
	}
}
