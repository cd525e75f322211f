package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/crypto/x509roots/fallback/bundle"
)

const (
	manifestType = "application/vnd.oci.image.manifest.v1+json"
	configType   = "application/vnd.oci.image.config.v1+json"
	layerType    = "application/vnd.oci.image.layer.v1.tar+gzip"
)

// owner is the id of the user that owns /data and runs the server, as in deploy/Dockerfile.
const owner = 65532

// image describes a container image of the server. It is the same image that deploy/Dockerfile
// builds: the user, the ports, the volume, the environment and the entry point are read from that
// file. The same program and time give the same archive.
type image struct {
	program      string // the file weir for this architecture
	dockerfile   string // the file deploy/Dockerfile
	architecture string // amd64 or arm64
	version      string // version of the release, which becomes the tag of the image
	commit       string // the commit that the program was built from
	time         int64  // time of all files, in seconds since 1970
}

// descriptor refers to a blob, which is a file of the archive.
type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int               `json:"size"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// write writes an archive that docker load and podman load read, and that skopeo copies into a
// registry. The archive is an OCI layout with the file manifest.json, by which older versions of
// Docker find the image.
func (o *image) write(w io.Writer) error {
	created := time.Unix(o.time, 0).UTC()
	plain, err := o.layer(created)
	if err != nil {
		return err
	}
	var packed bytes.Buffer
	z, _ := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	z.Write(plain) // a bytes.Buffer returns no errors
	z.Close()
	out := archive{tar.NewWriter(w), created, map[string]bool{}}
	layer := out.blob(layerType, packed.Bytes())

	config, err := readDockerfile(o.dockerfile)
	if err != nil {
		return err
	}
	config["Labels"] = map[string]string{
		"org.opencontainers.image.title": "weir", "org.opencontainers.image.version": o.version, "org.opencontainers.image.revision": o.commit,
		"org.opencontainers.image.licenses": "Apache-2.0",
	}
	described := out.json(configType, map[string]any{
		"created": created, "architecture": o.architecture, "os": "linux", "config": config,
		"rootfs":  map[string]any{"type": "layers", "diff_ids": []string{digest(plain)}},
		"history": []any{map[string]any{"created": created, "created_by": "tools/image.go"}},
	})
	manifest := out.json(manifestType, map[string]any{
		"schemaVersion": 2, "mediaType": manifestType, "config": described, "layers": []descriptor{layer},
	})
	// A version may contain the characters ~ and +, which are not allowed in a tag.
	tag := strings.NewReplacer("~", "-", "+", "-").Replace(o.version)
	manifest.Annotations = map[string]string{"io.containerd.image.name": "docker.io/library/weir:" + tag, "org.opencontainers.image.ref.name": tag}
	out.file("oci-layout", []byte(`{"imageLayoutVersion":"1.0.0"}`))
	out.file("index.json", encode(map[string]any{
		"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": []descriptor{manifest},
	}))
	out.file("manifest.json", encode([]any{map[string]any{
		"Config": path(described.Digest), "RepoTags": []string{"weir:" + tag}, "Layers": []string{path(layer.Digest)},
	}}))
	return out.Close() // reports the first error of any write
}

// layer returns the files of the image as a tar archive.
func (o *image) layer(created time.Time) ([]byte, error) {
	program, err := os.ReadFile(o.program)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	out := archive{tar.NewWriter(&b), created, map[string]bool{}}
	out.add(tar.Header{Name: "etc/ssl/certs/ca-certificates.crt", Mode: 0o644}, authorities())
	out.add(tar.Header{Name: "usr/bin/weir", Mode: 0o755}, program)
	out.add(tar.Header{Name: "data/", Mode: 0o700, Uid: owner, Gid: owner}, nil)
	if err := out.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// authorities returns the certificates of the public authorities. The server needs them for ACME. They
// come from a module with a fixed version, and not from the machine that builds the release. The
// authorities that browsers trust only in part are left out.
func authorities() []byte {
	var b bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint == nil {
			pem.Encode(&b, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate})
		}
	}
	return b.Bytes()
}

// archive is a tar archive whose files all have the same time.
type archive struct {
	*tar.Writer
	created time.Time
	made    map[string]bool // directories that the archive has
}

// add adds a file, or a directory if its name ends in a slash, and the directories above it. If add
// fails, Close returns the error.
func (a archive) add(h tar.Header, content []byte) {
	for i, c := range h.Name[:len(h.Name)-1] {
		if dir := h.Name[:i+1]; c == '/' && !a.made[dir] {
			a.made[dir] = true
			a.WriteHeader(&tar.Header{Name: dir, Mode: 0o755, ModTime: a.created, Typeflag: tar.TypeDir})
		}
	}
	h.ModTime, h.Size, h.Typeflag = a.created, int64(len(content)), tar.TypeReg
	if strings.HasSuffix(h.Name, "/") {
		h.Typeflag = tar.TypeDir
	}
	a.WriteHeader(&h)
	a.Write(content)
}

func (a archive) file(name string, content []byte) {
	a.add(tar.Header{Name: name, Mode: 0o644}, content)
}

// blob adds a blob and describes it.
func (a archive) blob(mediaType string, content []byte) descriptor {
	d := descriptor{MediaType: mediaType, Digest: digest(content), Size: len(content)}
	a.file(path(d.Digest), content)
	return d
}

func (a archive) json(mediaType string, value any) descriptor {
	return a.blob(mediaType, encode(value))
}

// encode encodes a value that is known to have a JSON form. The members of maps are sorted.
func encode(value any) []byte {
	b, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	return b
}

func digest(b []byte) string { return fmt.Sprintf("sha256:%x", sha256.Sum256(b)) }

// path returns the name of the file with the blob of this digest.
func path(digest string) string { return "blobs/" + strings.ReplaceAll(digest, ":", "/") }
