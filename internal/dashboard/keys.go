package dashboard

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"weir"
	"weir/internal/access"
)

// keyRow is a key as the pages show it.
type keyRow struct {
	access.Key
	ProjectName string
	Requests    uint64 // in the last 24 hours; for a key that revokes itself, since the start of this node
	Open        int    // open subscriptions
}

// Revoked reports whether the key is revoked.
func (k keyRow) Revoked() bool { return k.RevokedAt != nil }

// Everything reports whether the key has all permissions on all streams of its project.
func (k keyRow) Everything() bool { return len(k.Permissions) == 3 && len(k.Streams) == 0 }

// row adds the figures that the pages show next to a key. It gets the result of keyUse.
func (v *visit) row(k access.Key, counts map[string]uint64) keyRow {
	row := keyRow{Key: k, Requests: counts[k.ID]}
	if p, ok := v.Access.Project(k.Project); ok {
		row.ProjectName = p.Name
	}
	if g, ok := v.Access.Grant(k.ID); ok {
		row.Open = v.API.SubscriptionsOf(g)
		if k.RevokeAt != nil { // keyUse leaves out keys that revoke themselves
			row.Requests = g.Requests()
		}
	}
	return row
}

// keysView is the data of a page of the key list.
type keysView struct {
	Keys     []keyRow
	Projects []weir.Project
	Project  weir.ProjectID // filter; empty for all
	Revoked  bool           // include revoked keys
	Found    int
	Paging   paging
}

const keysPage = 50

func (v *visit) keys() error {
	k := keysView{Projects: v.Access.Projects(), Project: weir.ProjectID(v.query("project")), Revoked: v.query("revoked") != ""}
	list := slices.DeleteFunc(v.Access.Keys(k.Project), func(e access.Key) bool { return !k.Revoked && e.RevokedAt != nil })
	slices.SortStableFunc(list, func(a, b access.Key) int { return cmp.Compare(b.CreatedAt, a.CreatedAt) })
	var from, to int
	k.Found = len(list)
	k.Paging, from, to = pages(v.r, keysPage, len(list))
	used := v.keyUse()
	for _, e := range list[from:to] {
		k.Keys = append(k.Keys, v.row(e, used))
	}
	return v.page(http.StatusOK, "keys", "Keys", k)
}

// keyForm is the data of the form for a new key.
type keyForm struct {
	Projects []weir.Project
	Project  weir.ProjectID
	Kind     string
	Name     string
	Can      map[string]bool // selected permissions
	Confined bool            // restrict the key to the selected streams
	Chosen   []streamChoice
	Error    string
}

// streamChoice is a stream in the picker of the form.
type streamChoice struct {
	ID     weir.StreamID `json:"id"`
	Name   string        `json:"name"`
	Chosen bool          `json:"-"`
}

// offered is the number of unselected streams that the picker shows at a time.
const offered = 30

func (v *visit) newKey() error {
	f := keyForm{
		Projects: v.Access.Projects(), Project: weir.ProjectID(v.query("project")), Kind: "live",
		Can: map[string]bool{"read": true, "publish": true, "manage": true},
	}
	if f.Project == "" && len(f.Projects) > 0 {
		f.Project = f.Projects[0].ID
	}
	if f.Project != "" {
		f.Chosen = v.choices(f.Project, "", nil)
	}
	return v.page(http.StatusOK, "key_new", "New key", f)
}

// choices returns the chosen streams, followed by other streams of the project that match the text,
// newest first.
func (v *visit) choices(p weir.ProjectID, text string, chosen []weir.StreamID) []streamChoice {
	var list []streamChoice
	for _, id := range chosen {
		c := streamChoice{ID: id, Chosen: true}
		if s, err := v.Hub.Stream(id); err == nil && s.Project == p {
			c.Name = s.Name()
		}
		list = append(list, c)
	}
	for _, s := range slices.Backward(v.Hub.Streams()) {
		if len(list) == len(chosen)+offered {
			break
		}
		if s.Project != p || slices.Contains(chosen, s.ID) || !matchesStream(s, strings.ToLower(text)) {
			continue
		}
		list = append(list, streamChoice{ID: s.ID, Name: s.Name()})
	}
	return list
}

// pickStreams returns choices as JSON, for the script of the form.
func (v *visit) pickStreams() error {
	list := v.choices(weir.ProjectID(v.query("project")), v.query("q"), nil)
	if list == nil {
		list = []streamChoice{}
	}
	for i := range list {
		list[i].Name = string(visible([]byte(list[i].Name)))
	}
	return v.json(list)
}

func (v *visit) createKey() error {
	f := keyForm{
		Projects: v.Access.Projects(), Project: weir.ProjectID(v.field("project")), Kind: v.field("kind"), Name: v.field("name"),
		Can: map[string]bool{}, Confined: v.field("confined") != "",
	}
	spec := access.KeySpec{Project: f.Project, Kind: access.Kind(f.Kind), Name: f.Name}
	for _, p := range v.r.PostForm["permission"] {
		f.Can[p] = true
		spec.Permissions = append(spec.Permissions, access.Permission(p))
	}
	if f.Confined {
		for _, id := range v.r.PostForm["stream"] {
			spec.Streams = append(spec.Streams, weir.StreamID(id))
		}
	}
	again := func(what string) error {
		f.Error, f.Chosen = what, v.choices(f.Project, "", spec.Streams)
		return v.page(http.StatusBadRequest, "key_new", "New key", f)
	}
	switch {
	case len(spec.Permissions) == 0: // for an empty list, CreateKey would grant all permissions
		return again("Select at least one permission.")
	case f.Confined && len(spec.Streams) == 0: // for an empty list, CreateKey would grant access to all streams
		return again("Select at least one stream, or do not restrict the key.")
	}
	for _, id := range spec.Streams {
		if s, err := v.Hub.Stream(id); err != nil || s.Project != f.Project {
			return again(fmt.Sprintf("The project has no stream with ID %s.", access.Redacted(string(id))))
		}
	}
	k, secret, err := v.Access.CreateKey(v.r.Context(), spec)
	if err != nil {
		if known, ok := asKnown(err); ok && known.Code == weir.InvalidRequest {
			return again(known.Message)
		}
		return err
	}
	v.keep(k.ID, secret.Reveal())
	v.did("key created", k.Masked+" "+k.ID+" "+k.Name)
	return v.back("/dashboard/keys/"+k.ID, "")
}

// keyView is the data of a key's page.
type keyView struct {
	keyRow
	Secret    string // empty except on the first view after the key was created
	Publish   string // a command to copy; empty if Secret is empty or the key may not publish
	Subscribe string // a command to copy; empty if Secret is empty or the key may not read
	Streams   []streamChoice
	Span      string // time span of the plots
}

func (v *visit) findKey() (access.Key, error) {
	id := v.r.PathValue("id")
	k, ok := v.Access.Key(id)
	if !ok {
		return access.Key{}, weir.Errorf(weir.NotFound, "no key has the ID %q", access.Redacted(id))
	}
	return k, nil
}

func (v *visit) key() error {
	k, err := v.findKey()
	if err != nil {
		return err
	}
	view := keyView{keyRow: v.row(k, v.keyUse()), Secret: v.reveal(k.ID), Span: v.spanName()}
	for _, id := range k.Streams[:min(len(k.Streams), 100)] {
		c := streamChoice{ID: id}
		if s, err := v.Hub.Stream(id); err == nil {
			c.Name = s.Name()
		}
		view.Streams = append(view.Streams, c)
	}
	if view.Secret != "" {
		view.Publish, view.Subscribe = v.lines(k, view.Secret)
	}
	return v.page(http.StatusOK, "key", "Key", view)
}

// keyFigures returns the plots of a key as JSON.
func (v *visit) keyFigures() error {
	k, err := v.findKey()
	if err != nil {
		return err
	}
	parts := map[string]string{}
	if err := addTrouble(parts, v.troubles()); err != nil {
		return err
	}
	over := v.spanName()
	current := record{id: idOf(k.ID)}
	if g, ok := v.Access.Grant(k.ID); ok {
		current = keyRecord(k.ID, g.Work())
	}
	list := v.pasts.samplesOf(&v.pasts.keys, v.now, over, k.CreatedAt, current)
	return v.json(map[string]any{"parts": parts, "plots": plotsOf(list, v.now, spanOf(over), recordColumns[:]...)})
}

// lines returns a curl command that publishes and one that subscribes with a key. A command is
// empty if the key lacks the permission. Both use the newest stream that the key can access.
func (v *visit) lines(k access.Key, secret string) (publish, subscribe string) {
	stream, mode := weir.StreamID("STREAM"), weir.JSON
	for _, s := range v.Hub.Streams() { // oldest first, so the last match is the newest
		if s.Project == k.Project && (len(k.Streams) == 0 || slices.Contains(k.Streams, s.ID)) {
			stream, mode = s.ID, s.Mode
		}
	}
	head := "curl -sS" + v.Curl + " -H 'Authorization: Bearer " + secret + "'"
	at := v.BaseURL + "/v1/streams/" + string(stream)
	if slices.Contains(k.Permissions, access.Publish) {
		body := ` -H 'Content-Type: application/json' -d '{"events":["hello"]}' `
		if mode == weir.Raw {
			body = " -H 'Content-Type: application/octet-stream' --data-binary hello "
		}
		publish = head + body + at + "/publish"
	}
	if slices.Contains(k.Permissions, access.Read) {
		subscribe = strings.Replace(head, "-sS", "-sSN", 1) + " -H 'Accept: text/event-stream' '" + at + "?cursor=0'"
	}
	return publish, subscribe
}

func (v *visit) revokeKey() error {
	k, err := v.findKey()
	if err != nil {
		return err
	}
	page := "/dashboard/keys/" + k.ID
	if v.field("sure") == "" {
		return v.wrong(page, "Tick the box to confirm that you want to revoke the key.")
	}
	if _, err := v.Access.Revoke(v.r.Context(), k.ID); err != nil {
		return v.sorry(page, err)
	}
	v.did("key revoked", k.Masked+" "+k.ID+" "+k.Name)
	return v.back(page, "Key revoked. Its requests are refused from now on, and its subscriptions end.")
}

// rotationView is the data of the page that guides the operator through the rotation of a key.
type rotationView struct {
	Old     keyRow
	New     *keyRow // nil until the new key is created
	Secret  string  // the new key; empty except on the first view of the page after the key was created
	Publish string  // command to copy, which publishes with the new key
}

// rotation shows the steps of a rotation: create a key like the old one, wait until no client uses
// the old key, and revoke the old key.
func (v *visit) rotation() error {
	old, err := v.findKey()
	if err != nil {
		return err
	}
	used := v.keyUse()
	view := rotationView{Old: v.row(old, used)}
	if k, ok := v.Access.Key(v.query("new")); ok && k.Project == old.Project {
		row := v.row(k, used)
		view.New, view.Secret = &row, v.reveal(k.ID)
		if view.Secret != "" {
			view.Publish, _ = v.lines(k, view.Secret)
		}
	}
	return v.page(http.StatusOK, "key_rotate", "Rotate a key", view)
}

// rotateKey creates the new key.
func (v *visit) rotateKey() error {
	old, err := v.findKey()
	if err != nil {
		return err
	}
	page := "/dashboard/keys/" + old.ID + "/rotate"
	k, secret, err := v.Access.CreateKey(v.r.Context(), access.KeySpec{
		Project: old.Project, Kind: old.Kind, Name: v.field("name"), Permissions: old.Permissions, Streams: old.Streams,
	})
	if err != nil {
		return v.sorry(page, err)
	}
	v.keep(k.ID, secret.Reveal())
	v.did("key created", strings.TrimSpace(k.Masked+" "+k.ID+" "+k.Name)+", replaces "+old.ID)
	return v.back(page+"?new="+url.QueryEscape(k.ID), "")
}
