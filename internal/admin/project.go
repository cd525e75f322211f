package admin

import (
	"net/http"

	"weir"
)

// NewProject is the request body for creating a project.
type NewProject struct {
	Name string `json:"name"`
}

func (h *Handler) projects(*http.Request) (any, error) {
	list := h.access.Projects()
	if list == nil {
		list = []weir.Project{}
	}
	return list, nil
}

func (h *Handler) createProject(r *http.Request) (any, error) {
	var body NewProject
	if err := read(r, &body); err != nil {
		return nil, err
	}
	p, err := h.access.CreateProject(r.Context(), body.Name)
	if err == nil {
		h.did(r, "project created", p.Name)
	}
	return p, err
}
