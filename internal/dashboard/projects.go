package dashboard

import (
	"fmt"
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

// projectView is the data of the page that asks for confirmation before a project is deleted.
type projectView struct {
	weir.Project
	Streams int
	Keys    int // number of keys that are not revoked
}

// findProject returns the project whose ID is in the path.
func (v *visit) findProject() (projectView, error) {
	id := weir.ProjectID(v.r.PathValue("id"))
	p, ok := v.Access.Project(id)
	if !ok || id == access.DemoProject {
		return projectView{}, weir.Errorf(weir.NotFound, "project not found")
	}
	w := projectView{Project: p, Streams: v.Hub.Count(id)}
	for _, k := range v.Access.Keys(id) {
		if k.RevokedAt == nil {
			w.Keys++
		}
	}
	return w, nil
}

func (v *visit) confirmDeleteProject() error {
	p, err := v.findProject()
	if err != nil {
		return err
	}
	return v.page(http.StatusOK, "project_delete", "Delete a project", p)
}

// deleteProject deletes a project and revokes its keys. The form must contain the project's name or
// ID. A project that still has streams is not deleted, because a stream may hold data that is still
// needed.
func (v *visit) deleteProject() error {
	p, err := v.findProject()
	if err != nil {
		return err
	}
	page := "/dashboard/projects/" + string(p.ID) + "/delete"
	if got := v.field("name"); got != string(p.ID) && !isTyped(got, p.Name) {
		return v.wrong(page, "The text matches neither the project's name nor its ID. Nothing was deleted.")
	}
	empty := func() error {
		if n := v.Hub.Count(p.ID); n > 0 {
			return weir.Errorf(weir.InvalidRequest, "The project still has streams. Delete these first.")
		}
		return nil
	}
	if err := empty(); err != nil {
		return v.sorry(page, err)
	}
	revoked, err := v.Access.DeleteProject(v.r.Context(), p.ID, empty)
	if revoked > 0 {
		v.did("keys revoked", fmt.Sprintf("%d keys of the project %s", revoked, p.Name))
	}
	if known, ok := asKnown(err); ok && revoked > 0 {
		return v.wrong(page, known.Message+" The keys of the project are revoked already.")
	}
	if err != nil {
		return v.sorry(page, err)
	}
	v.did("project deleted", p.Name)
	return v.back("/dashboard/projects", "Project "+p.Name+" deleted.")
}
