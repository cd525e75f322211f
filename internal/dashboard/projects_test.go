package dashboard_test

import (
	"net/http"
	"strings"
	"testing"

	"weir"
	"weir/internal/access"
	"weir/internal/dashboard"
	"weir/internal/hub"
)

// A project without streams can be deleted, which revokes its keys. The audit log shows the deletion
// and the revocation.
func TestDeleteProject(t *testing.T) {
	svc := startService(t, "--demo")
	b := svc.signedIn()
	page := "/dashboard/projects/" + string(svc.Project) + "/delete"
	if text := b.see(page); !strings.Contains(text, "Only a project without streams can be deleted") || strings.Contains(text, "danger") {
		t.Errorf("a project with a stream: %s", text)
	}
	if b.post(page, "name", "test"); !strings.Contains(b.see(page), "still has streams") {
		t.Error("a project with a stream can be deleted")
	}
	s, err := svc.Hub.Stream(svc.stream)
	svc.must(err)
	svc.must(s.Delete(t.Context()))
	if b.post(page, "name", "other"); !strings.Contains(b.see(page), "Nothing was deleted") {
		t.Error("a wrong name deletes a project")
	}
	if status, _ := svc.v1("GET", "/v1/streams", svc.key, ""); status != http.StatusOK {
		t.Errorf("the refused deletions revoked the key: status %d", status)
	}
	if text := b.see(page); !strings.Contains(text, "1 key") {
		t.Errorf("the page does not say what will be revoked: %s", text)
	}
	b.post(page, "name", "test")
	if text := b.see("/dashboard/projects"); !strings.Contains(text, "Project test deleted.") || strings.Contains(text, string(svc.Project)) {
		t.Errorf("the project is not deleted: %s", text)
	}
	if status, _ := svc.v1("GET", "/v1/streams", svc.key, ""); status != http.StatusUnauthorized {
		t.Errorf("a key of the deleted project: status %d, want 401", status)
	}
	for _, what := range []string{"project deleted", "keys revoked"} {
		if list := dashboard.SearchAudit(svc.Dashboard, what); len(list) != 1 {
			t.Errorf("audit log, %s: %+v", what, list)
		}
	}
	for _, id := range []string{string(svc.Project), string(access.DemoProject), "x"} {
		if status, _, _ := b.post("/dashboard/projects/"+id+"/delete", "name", id); status != http.StatusNotFound {
			t.Errorf("delete project %s: status %d, want 404", id, status)
		}
	}
	deleted := svc.Project
	svc.restart()
	if _, ok := svc.Access.Project(deleted); ok {
		t.Error("the deleted project is back after a restart")
	}
}

// Characters that are invisible or change the direction of text are shown as numbers, on every page
// and in the data that scripts load. A name with such characters can be typed as it is shown.
func TestUnseenCharacters(t *testing.T) {
	svc := startService(t)
	b := svc.signedIn()
	const name, shown = "pay\u202etxt.exe\u200b\x07\u2066", "pay[U+202E]txt.exe[U+200B][U+0007][U+2066]"
	id := svc.NewStream(hub.Spec{Name: name, Mode: weir.JSON})
	page := "/dashboard/streams/" + string(id)
	for _, path := range []string{"/dashboard/streams", page, page + "/delete", page + "/connect", "/dashboard/streams/pick?project=" + string(svc.Project), page + "/figures", "/dashboard/streams?q=%e2%80%ae"} {
		text := b.see(path)
		if strings.ContainsAny(text, "\u202e\u200b\x07\u2066") || strings.Contains(text, `\u202e`) && !strings.Contains(path, "figures") {
			t.Errorf("%s contains an unseen character", path)
		}
		if !strings.Contains(text, shown) && !strings.Contains(path, "figures") {
			t.Errorf("%s does not show the name as %s: %s", path, shown, text)
		}
	}
	if text := b.see("/dashboard/streams"); !strings.Contains(text, "clicks") {
		t.Errorf("a name of visible characters is not shown unchanged: %s", text)
	}
	b.post(page+"/delete", "name", shown)
	if status, _, _ := b.get(page); status != http.StatusNotFound {
		t.Errorf("the name as it is shown does not delete the stream: status %d", status)
	}
}
