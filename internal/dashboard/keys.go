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

// keyRow is a key in the list.
type keyRow struct {
	access.Key
	ProjectName string
	Requests    uint64 // in the last day
	Open        int    // subscriptions
}

// Revoked tells whether it is.
func (k keyRow) Revoked() bool { return k.RevokedAt != nil }

// Everything tells whether the key has all permissions on its whole project.
func (k keyRow) Everything() bool { return len(k.Permissions) == 3 && len(k.Streams) == 0 }

func (v *visit) row(k access.Key, used map[string]uint64) keyRow {
	row := keyRow{Key: k, Requests: used[k.ID]}
	if p, ok := v.Access.Project(k.Project); ok {
		row.ProjectName = p.Name
	}
	if g, ok := v.Access.Grant(k.ID); ok {
		row.Open = v.API.SubscriptionsOf(g)
	}
	return row
}

// keysView is a page of the list.
type keysView struct {
	Keys     []keyRow
	Projects []weir.Project
	Project  weir.ProjectID
	Revoked  bool // those too
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

// keyForm is the form for a new key.
type keyForm struct {
	Projects []weir.Project
	Project  weir.ProjectID
	Kind     string
	Name     string
	Can      map[string]bool
	Confined bool
	Chosen   []streamChoice
	Error    string
}

// streamChoice is a stream that a key may be confined to.
type streamChoice struct {
	ID     weir.StreamID `json:"id"`
	Name   string        `json:"name"`
	Chosen bool          `json:"-"`
}

// offered is how many streams are offered to choose from at a time.
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

// choices are the chosen streams, and others of the project that match a text.
func (v *visit) choices(p weir.ProjectID, text string, chosen []weir.StreamID) []streamChoice {
	var list []streamChoice
	for _, id := range chosen {
		c := streamChoice{ID: id, Chosen: true}
		if s, err := v.Hub.Stream(id); err == nil && s.Project == p {
			c.Name = s.Name
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
		list = append(list, streamChoice{ID: s.ID, Name: s.Name})
	}
	return list
}

// pickStreams is the same for a script.
func (v *visit) pickStreams() error {
	list := v.choices(weir.ProjectID(v.query("project")), v.query("q"), nil)
	if list == nil {
		list = []streamChoice{}
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
	case len(spec.Permissions) == 0: // it would mean all of them
		return again("Choose one permission at least.")
	case f.Confined && len(spec.Streams) == 0: // it would mean the whole project
		return again("Choose one stream at least, or do not confine the key.")
	}
	for _, id := range spec.Streams {
		if s, err := v.Hub.Stream(id); err != nil || s.Project != f.Project {
			return again(fmt.Sprintf("The project has no stream %s.", access.Redacted(string(id))))
		}
	}
	k, secret, err := v.Access.CreateKey(v.r.Context(), spec)
	if err != nil {
		if known, ok := asKnown(err); ok && known.Code == weir.InvalidRequest {
			return again(known.Message)
		}
		return err
	}
	v.session.keep(k.ID, secret.Reveal())
	v.did("key created", k.Masked+" "+k.ID+" "+k.Name)
	return v.back("/dashboard/keys/"+k.ID, "")
}

// keyView is the page of a key.
type keyView struct {
	keyRow
	Secret    string // only the first time
	Publish   string // lines to paste
	Subscribe string
	Streams   []streamChoice
}

func (v *visit) findKey() (access.Key, error) {
	id := v.r.PathValue("id")
	k, ok := v.Access.Key(id)
	if !ok {
		return access.Key{}, weir.Errorf(weir.NotFound, "there is no key with the id %q", access.Redacted(id))
	}
	return k, nil
}

func (v *visit) key() error {
	k, err := v.findKey()
	if err != nil {
		return err
	}
	view := keyView{keyRow: v.row(k, v.keyUse()), Secret: v.reveal(k.ID)}
	for _, id := range k.Streams[:min(len(k.Streams), 100)] {
		c := streamChoice{ID: id}
		if s, err := v.Hub.Stream(id); err == nil {
			c.Name = s.Name
		}
		view.Streams = append(view.Streams, c)
	}
	if view.Secret != "" {
		view.Publish, view.Subscribe = v.lines(k, view.Secret)
	}
	return v.page(http.StatusOK, "key", "Key", view)
}

// lines are curl lines that use a key, for what it may do.
func (v *visit) lines(k access.Key, secret string) (publish, subscribe string) {
	stream, mode := weir.StreamID("STREAM"), weir.JSON
	for _, s := range v.Hub.Streams() { // the newest that it reaches
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
		return v.wrong(page, "Confirm that the key is to be revoked.")
	}
	if _, err := v.Access.Revoke(v.r.Context(), k.ID); err != nil {
		return v.sorry(page, err)
	}
	v.did("key revoked", k.Masked+" "+k.ID+" "+k.Name)
	return v.back(page, "The key was revoked: its next request is refused, and its subscriptions are over.")
}

// rotationView is the way from one key to the next.
type rotationView struct {
	Old     keyRow
	New     *keyRow
	Secret  string
	Publish string
}

// rotation guides through a rotation: a new key like the old one, the old one's last use, its end.
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

// rotateKey makes the new key.
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
	v.session.keep(k.ID, secret.Reveal())
	v.did("key created", fmt.Sprintf("%s %s %s, to take the place of %s", k.Masked, k.ID, k.Name, old.ID))
	return v.back(page+"?new="+url.QueryEscape(k.ID), "")
}
