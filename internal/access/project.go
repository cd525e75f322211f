package access

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"unicode"
	"unicode/utf8"

	"weir"
	"weir/internal/engine"
)

// CreateProject creates a project. The project is durable when the call returns. The name must be 1
// to 128 code points without control characters, and no other project may have this name; otherwise
// the error is InvalidRequest.
func (a *Access) CreateProject(ctx context.Context, name string) (weir.Project, error) {
	p, made, err := a.MakeProject(ctx, name)
	if err == nil && !made {
		err = weir.Errorf(weir.InvalidRequest, "a project named %q already exists", name)
	}
	if err != nil {
		return weir.Project{}, err
	}
	return p, nil
}

// EnsureProject returns the project with this name, and creates it if it does not exist.
func (a *Access) EnsureProject(ctx context.Context, name string) (weir.Project, error) {
	if p, ok := a.ProjectNamed(name); ok && p.ID != DemoProject {
		return p, nil
	}
	p, _, err := a.MakeProject(ctx, name)
	return p, err
}

// MakeProject creates a project with this name, or returns the existing one. It returns made ==
// true if it created the project. The project is durable when the call returns. The rules for names
// are those of CreateProject.
func (a *Access) MakeProject(ctx context.Context, name string) (p weir.Project, made bool, err error) {
	if err := checkName("project", name, 1); err != nil {
		return p, false, err
	}
	if name == DemoProjectName {
		return p, false, weir.Errorf(weir.InvalidRequest, "the project name %q is reserved for the demo", name)
	}
	p = weir.Project{ID: weir.ProjectID(weir.NewStreamID()), Name: name, CreatedAt: a.steady.wallTime()}
	value, err := json.Marshal(p)
	if err != nil {
		return p, false, err
	}
	key := projectDocument(name)
	// The project is created even if the caller gives up. MakeProject still waits for the store, so
	// that the audit log records the result.
	_, err = a.docs.Create(context.WithoutCancel(ctx), key, value)
	made = err == nil
	if err != nil && !errors.Is(err, engine.ErrExists) {
		return weir.Project{}, false, storeError("create a project", err)
	}
	p, ok := a.ProjectNamed(name)
	if !ok { // another process has changed the document since
		return weir.Project{}, false, fmt.Errorf("create a project: the document %s was deleted or cannot be read", key)
	}
	return p, made, nil
}

// projectDocument returns the name of the document that holds the project with this name. The
// document's name contains only a digest, because the project's name may be longer than the store
// allows.
func projectDocument(name string) string {
	sum := sha256.Sum256([]byte(name))
	return projectPrefix + hex.EncodeToString(sum[:])
}

// projectEntry is a project in memory, with the revision of its document.
type projectEntry struct {
	weir.Project
	revision engine.Revision
}

// adoptProject updates memory from a project document. After an interrupted rename, a project has
// two documents, with its old and its new name. The store reports them in the order of their
// revisions, so the document with the new name comes last and wins. Only documentChanged calls
// adoptProject.
func (a *Access) adoptProject(doc engine.Document) error {
	p, err := readProject(doc)
	if err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	known, ok := a.projects[p.ID]
	if ok && a.names[known.Name] == p.ID {
		delete(a.names, known.Name)
	}
	a.projects[p.ID] = projectEntry{p, doc.Revision}
	a.names[p.Name] = p.ID
	return nil
}

// forgetProject drops a project whose document was deleted. It keeps a project that was renamed,
// because the document with the new name still exists. Only documentChanged calls it.
func (a *Access) forgetProject(key string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for id, p := range a.projects {
		if projectDocument(p.Name) == key {
			delete(a.projects, id)
			if a.names[p.Name] == id {
				delete(a.names, p.Name)
			}
		}
	}
}

// RenameProject changes the name of a project. The rules for names are those of CreateProject. The
// project's id, keys and streams stay the same. The new name is durable when the call returns. The
// call fails with NotFound if there is no such project.
func (a *Access) RenameProject(ctx context.Context, id weir.ProjectID, name string) (weir.Project, error) {
	if id == DemoProject {
		return weir.Project{}, weir.Errorf(weir.InvalidRequest, "the demo project is built in and cannot be renamed")
	}
	if err := checkName("project", name, 1); err != nil {
		return weir.Project{}, err
	}
	ctx = context.WithoutCancel(ctx) // a rename must not stop between its two documents
	a.renaming.Lock()
	defer a.renaming.Unlock()
	a.mu.RLock()
	entry, ok := a.projects[id]
	a.mu.RUnlock()
	p := entry.Project
	switch {
	case !ok:
		return weir.Project{}, weir.Errorf(weir.NotFound, "there is no project with the id %q", Redacted(string(id)))
	case name == p.Name:
		return p, nil
	case name == DemoProjectName:
		return weir.Project{}, weir.Errorf(weir.InvalidRequest, "the project name %q is reserved for the demo", name)
	}
	old := p.Name
	p.Name = name
	value, err := json.Marshal(p)
	if err != nil {
		return weir.Project{}, err
	}
	// The new document is created before the old one is deleted. After a crash in between, the
	// project has its new name, and finishRenames deletes the old document.
	_, err = a.docs.Create(ctx, projectDocument(name), value)
	if errors.Is(err, engine.ErrExists) {
		return weir.Project{}, weir.Errorf(weir.InvalidRequest, "a project named %q already exists", name)
	}
	if err != nil {
		return weir.Project{}, storeError("rename a project", err)
	}
	if err := a.deleteName(ctx, projectDocument(old), entry.revision); err != nil {
		return weir.Project{}, storeError("delete the old name of a project", err)
	}
	return p, nil
}

// DeleteProject revokes all keys of a project and deletes the project. Both are durable when the call
// returns. It does not delete the streams of the project: the caller must make sure that there are
// none. The function ready is called after the keys are revoked and before the project is deleted;
// if it returns an error, the project stays. The call fails with NotFound if there is no such
// project.
func (a *Access) DeleteProject(ctx context.Context, id weir.ProjectID, ready func() error) (revoked int, err error) {
	if id == DemoProject {
		return 0, weir.Errorf(weir.InvalidRequest, "the demo project is built in and cannot be deleted")
	}
	ctx = context.WithoutCancel(ctx) // the caller records what was done, so it must learn the outcome
	a.renaming.Lock()
	defer a.renaming.Unlock()
	a.mu.RLock()
	entry, ok := a.projects[id]
	a.mu.RUnlock()
	if !ok {
		return 0, weir.Errorf(weir.NotFound, "there is no project with the id %q", Redacted(string(id)))
	}
	if revoked, err = a.revokeAll(ctx, id); err != nil {
		return revoked, err
	}
	if err := ready(); err != nil {
		return revoked, err
	}
	err = a.docs.Delete(ctx, projectDocument(entry.Name), entry.revision)
	if errors.Is(err, engine.ErrConflict) {
		return revoked, weir.Errorf(weir.InvalidRequest, "the project %q was changed at the same time; try again", entry.Name)
	}
	if err != nil && !errors.Is(err, engine.ErrNotFound) {
		return revoked, storeError("delete a project", err)
	}
	late, err := a.revokeAll(ctx, id) // keys that were created after the first call; a deleted project gets no more keys
	return revoked + late, err
}

// revokeAll revokes the keys of a project and returns how many it revoked.
func (a *Access) revokeAll(ctx context.Context, id weir.ProjectID) (n int, err error) {
	for _, k := range a.Keys(id) {
		if k.RevokedAt != nil {
			continue
		}
		if _, err := a.Revoke(ctx, k.ID); err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}

// deleteName deletes the document of an old name, unless another project has taken the name since.
func (a *Access) deleteName(ctx context.Context, key string, rev engine.Revision) error {
	err := a.docs.Delete(ctx, key, rev)
	if errors.Is(err, engine.ErrNotFound) || errors.Is(err, engine.ErrConflict) {
		return nil
	}
	return err
}

// finishRenames deletes the documents that interrupted renames left behind.
func (a *Access) finishRenames(ctx context.Context) error {
	stale := map[string]engine.Revision{}
	err := a.each(ctx, projectPrefix, func(doc engine.Document) error {
		p, err := readProject(doc)
		if err != nil {
			return err
		}
		if now, ok := a.Project(p.ID); ok && now.Name != p.Name {
			stale[doc.Key] = doc.Revision
		}
		return nil
	})
	for key, rev := range stale {
		if err == nil {
			err = a.deleteName(ctx, key, rev)
		}
	}
	return err
}

// Projects returns all projects, oldest first, without the built-in demo project.
func (a *Access) Projects() []weir.Project {
	a.mu.RLock()
	defer a.mu.RUnlock()
	list := make([]weir.Project, 0, len(a.projects))
	for _, p := range a.projects {
		list = append(list, p.Project)
	}
	slices.SortFunc(list, func(p, q weir.Project) int {
		return cmp.Or(cmp.Compare(p.CreatedAt, q.CreatedAt), cmp.Compare(p.Name, q.Name))
	})
	return list
}

// Project returns the project with this id. It includes the demo project while the demo is on.
func (a *Access) Project(id weir.ProjectID) (weir.Project, bool) {
	if id == DemoProject && a.demo {
		return weir.Project{ID: DemoProject, Name: DemoProjectName}, true
	}
	a.mu.RLock()
	defer a.mu.RUnlock()
	p, ok := a.projects[id]
	return p.Project, ok
}

// ProjectNamed returns the project with this name. It includes the demo project while the demo is
// on.
func (a *Access) ProjectNamed(name string) (weir.Project, bool) {
	if name == DemoProjectName {
		return a.Project(DemoProject)
	}
	a.mu.RLock()
	defer a.mu.RUnlock()
	p, ok := a.projects[a.names[name]]
	return p.Project, ok
}

// checkName checks that a name has from minLength to 128 code points. It refuses control
// characters, because names are printed on terminals. It also refuses a name that contains a key,
// which would end up in logs.
func checkName(what, name string, minLength int) error {
	if !utf8.ValidString(name) {
		return weir.Errorf(weir.InvalidRequest, "the name of a %s must be valid UTF-8", what)
	}
	if n := utf8.RuneCountInString(name); n < minLength || n > weir.MaxName {
		return weir.Errorf(weir.InvalidRequest, "the name of a %s must have %d to %d characters, not %d", what, minLength, weir.MaxName, n)
	}
	if Redacted(name) != name {
		return weir.Errorf(weir.InvalidRequest, "the name of a %s must not contain an API key", what)
	}
	for _, r := range name {
		if unicode.IsControl(r) {
			return weir.Errorf(weir.InvalidRequest, "the name of a %s must not contain control characters", what)
		}
	}
	return nil
}
