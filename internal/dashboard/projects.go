package dashboard

import (
	"net/http"

	"weir"
	"weir/internal/access"
)

// projectRow is a project in the list.
type projectRow struct {
	weir.Project
	Streams int
	Keys    int // number of keys that are not revoked
	Demo    bool
}

func (v *visit) projects() error {
	var list []projectRow
	for _, p := range v.Access.Projects() {
		row := projectRow{Project: p, Streams: v.Hub.Count(p.ID)}
		for _, k := range v.Access.Keys(p.ID) {
			if k.RevokedAt == nil {
				row.Keys++
			}
		}
		list = append(list, row)
	}
	if p, ok := v.Access.Project(access.DemoProject); ok {
		list = append(list, projectRow{Project: p, Streams: v.Hub.Count(p.ID), Keys: 1, Demo: true})
	}
	return v.page(http.StatusOK, "projects", "Projects", list)
}

func (v *visit) createProject() error {
	const page = "/dashboard/projects"
	p, err := v.Access.CreateProject(v.r.Context(), v.field("name"))
	if err != nil {
		return v.sorry(page, err)
	}
	v.did("project created", p.Name)
	return v.back(page, "Project "+p.Name+" created.")
}

func (v *visit) renameProject() error {
	const page = "/dashboard/projects"
	id := weir.ProjectID(v.r.PathValue("id"))
	old, _ := v.Access.Project(id)
	p, err := v.Access.RenameProject(v.r.Context(), id, v.field("name"))
	if err != nil {
		return v.sorry(page, err)
	}
	if old.Name != p.Name {
		v.did("project renamed", old.Name+" to "+p.Name)
	}
	return v.back(page, "Project renamed to "+p.Name+".")
}
