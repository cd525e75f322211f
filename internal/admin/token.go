package admin

import (
	"net/http"

	"weir/internal/access"
)

// NewToken is the request body for creating a management token.
type NewToken struct {
	Name string `json:"name"`
}

// MadeToken is the response to creating a management token. It is the only response that contains
// the token itself.
type MadeToken struct {
	access.Token
	Secret string `json:"token"`
}

func (h *Handler) tokens(*http.Request) (any, error) { return h.access.Tokens(), nil }

func (h *Handler) createToken(r *http.Request) (any, error) {
	var body NewToken
	if err := read(r, &body); err != nil {
		return nil, err
	}
	t, secret, err := h.access.CreateToken(r.Context(), body.Name)
	if err != nil {
		return nil, err
	}
	h.did(r, "token created", t.Masked+" "+t.ID+" "+t.Name)
	return MadeToken{t, secret.Reveal()}, nil
}

func (h *Handler) revokeToken(r *http.Request) (any, error) {
	t, err := h.access.RevokeToken(r.Context(), r.PathValue("id"))
	if err == nil {
		h.did(r, "token revoked", t.Masked+" "+t.ID+" "+t.Name)
	}
	return t, err
}
