package dashboard

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"io/fs"
	"net/http"
	"path"
	"strconv"
	"sync"
)

//go:embed assets/*.js assets/*.css assets/*.svg assets/uplot.LICENSE
var assetFiles embed.FS

type asset struct {
	body []byte
	kind string // content type
	tag  string // hash of the body; used as the ETag and as the query part of the URL
}

var assetKinds = map[string]string{".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8", ".svg": "image/svg+xml",
	".LICENSE": "text/plain; charset=utf-8"}

// assets returns the embedded scripts and styles by name.
var assets = sync.OnceValue(func() map[string]asset {
	files, err := fs.Sub(assetFiles, "assets")
	all := map[string]asset{}
	if err == nil {
		err = readAssets(all, files)
	}
	if err != nil {
		panic(err)
	}
	return all
})

// readAssets adds the files of a directory to the map all.
func readAssets(all map[string]asset, files fs.FS) error {
	list, err := fs.ReadDir(files, ".")
	if err != nil {
		return err
	}
	for _, f := range list {
		body, err := fs.ReadFile(files, f.Name())
		if err != nil {
			return err
		}
		sum := sha256.Sum256(body)
		all[f.Name()] = asset{body, assetKinds[path.Ext(f.Name())], hex.EncodeToString(sum[:6])}
	}
	return nil
}

// assetURL returns the URL under which a page loads a script or style. The URL changes with the
// contents of the file, so browsers may cache the file forever.
func assetURL(name string) string { return "/dashboard/assets/" + name + "?" + assets()[name].tag }

// asset serves a script or style. It needs no session, because the sign-in page loads scripts and
// styles too, and they contain no secret.
func (d *Dashboard) asset(w http.ResponseWriter, r *http.Request) {
	a, ok := assets()[r.PathValue("name")]
	if !ok {
		http.NotFound(w, r)
		return
	}
	h := w.Header()
	h.Set("Content-Type", a.kind)
	h.Set("Content-Length", strconv.Itoa(len(a.body)))
	h.Set("ETag", `"`+a.tag+`"`)
	if h.Set("Cache-Control", "no-cache"); r.URL.RawQuery == a.tag { // a script that another script imports has no tag in its URL, so the browser must revalidate it
		h.Set("Cache-Control", "public, max-age=31536000, immutable")
	}
	if r.Header.Get("If-None-Match") == `"`+a.tag+`"` {
		h.Del("Content-Length")
		w.WriteHeader(http.StatusNotModified)
		return
	}
	w.Write(a.body)
}
