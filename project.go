package weir

// ProjectID identifies a project: 22 base62 characters.
type ProjectID string

// Project owns streams and keys (D21).
type Project struct {
	ID        ProjectID `json:"id"`
	Name      string    `json:"name"`
	CreatedAt Time      `json:"created_at"`
}
