// What both pages have in common: they show messages, send what the user writes, and stop an answer.

export const chat = new URLSearchParams(location.search).get("chat");

/** Shows messages. Their text parts have a member `text` or `content`. */
export function show(messages) {
  const list = messages.map(({ role, parts }) => {
    const p = document.createElement("p");
    p.className = role;
    p.textContent = parts.filter((part) => part.type === "text").map((part) => part.text ?? part.content).join("");
    return p;
  });
  document.getElementById("messages").replaceChildren(...list);
}

/** Calls a function with what the user sends. The stop button ends the answer for every tab. */
export function listen(send) {
  document.querySelector("form").addEventListener("submit", (event) => {
    event.preventDefault();
    const input = document.querySelector("input");
    send(input.value);
    input.value = "";
  });
  document.getElementById("stop").addEventListener("click", () => fetch(`/api/stop?chat=${chat}`, { method: "POST" }));
}
