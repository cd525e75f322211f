package admin

import (
	"net/http"

	"weir"
	"weir/internal/access"
)

// NewKey is the request body for creating a key.
type NewKey struct {
	Project     string              `json:"project"` // name of the project, not its id
	Kind        access.Kind         `json:"kind"`
	Name        string              `json:"name"`
	Permissions []access.Permission `json:"permissions"`
	Streams     []weir.StreamID     `json:"streams"`
	RevokeAfter int64               `json:"revoke_after"` // seconds after which the key revokes itself; 0: never
}

// MadeKey is the response to creating a key. It is the only response that contains the key itself.
type MadeKey struct {
	access.Key
	Secret string `json:"key"`
}

func (h *Handler) keys(r *http.Request) (any, error) {
	projects := h.access.Projects()
	if name := r.URL.Query().Get("project"); name != "" {
		p, err := h.project(name)
		if err != nil {
			return nil, err
		}
		projects = []weir.Project{p}
	}
	list := []access.Key{}
	for _, p := range projects {
		list = append(list, h.access.Keys(p.ID)...)
	}
	return list, nil
}

func (h *Handler) createKey(r *http.Request) (any, error) {
	var body NewKey
	if err := read(r, &body); err != nil {
		return nil, err
	}
	p, err := h.project(body.Project)
	if err != nil {
		return nil, err
	}
	k, secret, err := h.access.CreateKey(r.Context(), access.KeySpec{
		Project: p.ID, Kind: body.Kind, Name: body.Name, Permissions: body.Permissions, Streams: body.Streams,
		RevokeAfter: body.RevokeAfter,
	})
	if err != nil {
		return nil, err
	}
	h.did(r, "key created", k.Masked+" "+k.ID+" "+k.Name)
	return MadeKey{k, secret.Reveal()}, nil
}

func (h *Handler) revoke(r *http.Request) (any, error) {
	k, err := h.access.Revoke(r.Context(), r.PathValue("id"))
	if err == nil {
		h.did(r, "key revoked", k.Masked+" "+k.ID+" "+k.Name)
	}
	return k, err
}

func (h *Handler) project(name string) (weir.Project, error) {
	p, ok := h.access.ProjectNamed(name)
	if !ok {
		return weir.Project{}, weir.Errorf(weir.InvalidRequest, "no project named %q", access.Redacted(name))
	}
	return p, nil
}
