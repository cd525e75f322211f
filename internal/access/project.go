package access

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"slices"
	"unicode"
	"unicode/utf8"

	"weir"
	"weir/internal/engine"
)

// CreateProject makes a project. Its name is 1 to 128 code points without control characters, and no other project has
// it: InvalidRequest otherwise. It is durable when the call returns.
func (a *Access) CreateProject(ctx context.Context, name string) (weir.Project, error) {
	p, made, err := a.makeProject(ctx, name)
	if err == nil && !made {
		err = weir.Errorf(weir.InvalidRequest, "a project named %q exists already", name)
	}
	if err != nil {
		return weir.Project{}, err
	}
	return p, nil
}

// EnsureProject returns the project of this name and makes it when there is none.
func (a *Access) EnsureProject(ctx context.Context, name string) (weir.Project, error) {
	if p, ok := a.ProjectNamed(name); ok && p.ID != DemoProject {
		return p, nil
	}
	p, _, err := a.makeProject(ctx, name)
	return p, err
}

// makeProject creates the project of this name, or finds the one that has it.
func (a *Access) makeProject(ctx context.Context, name string) (p weir.Project, made bool, err error) {
	if err := checkName("project", name, 1); err != nil {
		return p, false, err
	}
	if name == DemoProjectName {
		return p, false, weir.Errorf(weir.InvalidRequest, "the project name %q is reserved for the demo", name)
	}
	p = weir.Project{ID: weir.ProjectID(weir.NewStreamID()), Name: name, CreatedAt: weir.TimeOf(a.now())}
	value, err := json.Marshal(p)
	if err != nil {
		return p, false, err
	}
	key := projectDocument(name)
	doc, err := a.docs.Create(ctx, key, value)
	made = err == nil
	if errors.Is(err, engine.ErrExists) {
		doc, err = a.docs.Get(ctx, key)
	}
	if err != nil {
		return weir.Project{}, false, refused("create a project", err)
	}
	if err := a.adoptProject(doc); err != nil {
		return weir.Project{}, false, refused("read "+key, err)
	}
	p, _ = a.ProjectNamed(name)
	return p, made, nil
}

// projectDocument is where the record of a project is stored: under a digest of its name, since a name may be longer than a
// key of the store.
func projectDocument(name string) string {
	sum := sha256.Sum256([]byte(name))
	return projectPrefix + hex.EncodeToString(sum[:])
}

// projectEntry is a project in memory, and the revision of the document that says so.
type projectEntry struct {
	weir.Project
	revision engine.Revision
}

// adoptProject makes memory follow a document of a project, unless it has a later one: a rename that was cut off leaves the
// old document beside the new one.
func (a *Access) adoptProject(doc engine.Document) error {
	p, err := readProject(doc)
	if err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	known, ok := a.projects[p.ID]
	if ok && known.revision >= doc.Revision {
		return nil
	}
	if ok && a.names[known.Name] == p.ID {
		delete(a.names, known.Name)
	}
	a.projects[p.ID] = projectEntry{p, doc.Revision}
	a.names[p.Name] = p.ID
	return nil
}

// forgetProject drops a project whose document was deleted, unless it has another one: a renamed project does.
func (a *Access) forgetProject(key string, rev engine.Revision) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for id, p := range a.projects {
		if p.revision < rev && projectDocument(p.Name) == key {
			delete(a.projects, id)
			if a.names[p.Name] == id {
				delete(a.names, p.Name)
			}
		}
	}
}

// RenameProject gives a project another name, under the rules of CreateProject; its keys and streams do not notice. NotFound
// when there is no such project. The new name is durable when the call returns.
func (a *Access) RenameProject(ctx context.Context, id weir.ProjectID, name string) (weir.Project, error) {
	if id == DemoProject {
		return weir.Project{}, weir.Errorf(weir.InvalidRequest, "the demo project is built in and keeps its name")
	}
	if err := checkName("project", name, 1); err != nil {
		return weir.Project{}, err
	}
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
	// The new document first: whoever is cut off in between has a project with its new name, and finishRenames goes on.
	doc, err := a.docs.Create(ctx, projectDocument(name), value)
	if errors.Is(err, engine.ErrExists) {
		return weir.Project{}, weir.Errorf(weir.InvalidRequest, "a project named %q exists already", name)
	}
	if err != nil {
		return weir.Project{}, refused("rename a project", err)
	}
	if err := a.adoptProject(doc); err != nil {
		return weir.Project{}, refused("read "+doc.Key, err)
	}
	if err := a.giveUp(ctx, projectDocument(old), entry.revision); err != nil {
		return weir.Project{}, refused("give the old name of a project up", err)
	}
	return p, nil
}

// giveUp deletes the document of an old name, unless somebody else has the name meanwhile.
func (a *Access) giveUp(ctx context.Context, key string, rev engine.Revision) error {
	err := a.docs.Delete(ctx, key, rev)
	if errors.Is(err, engine.ErrNotFound) || errors.Is(err, engine.ErrConflict) {
		return nil
	}
	return err
}

// finishRenames gives up the names that a rename left behind when it was cut off.
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
			err = a.giveUp(ctx, key, rev)
		}
	}
	return err
}

// Projects lists what operators made, oldest first. The project of the demo is built in and in no list.
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

// Project finds a project by its id; that of the demo too, while the demo is on.
func (a *Access) Project(id weir.ProjectID) (weir.Project, bool) {
	if id == DemoProject && a.demo {
		return weir.Project{ID: DemoProject, Name: DemoProjectName}, true
	}
	a.mu.RLock()
	defer a.mu.RUnlock()
	p, ok := a.projects[id]
	return p.Project, ok
}

// ProjectNamed finds a project by its name, as Project does by its id.
func (a *Access) ProjectNamed(name string) (weir.Project, bool) {
	if name == DemoProjectName {
		return a.Project(DemoProject)
	}
	a.mu.RLock()
	defer a.mu.RUnlock()
	p, ok := a.projects[a.names[name]]
	return p.Project, ok
}

// checkName holds a name to least to 128 code points. Names are printed on terminals, so they hold no control characters.
func checkName(what, name string, least int) error {
	if !utf8.ValidString(name) {
		return weir.Errorf(weir.InvalidRequest, "the name of a %s must be valid UTF-8", what)
	}
	if n := utf8.RuneCountInString(name); n < least || n > weir.MaxName {
		return weir.Errorf(weir.InvalidRequest, "the name of a %s must have %d to %d characters, not %d", what, least, weir.MaxName, n)
	}
	if Redacted(name) != name {
		return weir.Errorf(weir.InvalidRequest, "the name of a %s must not hold a key", what)
	}
	for _, r := range name {
		if unicode.IsControl(r) {
			return weir.Errorf(weir.InvalidRequest, "the name of a %s must not hold control characters", what)
		}
	}
	return nil
}
