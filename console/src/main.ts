import { mount } from "svelte";

import App from "./App.svelte";
import "./styles/tokens.css";
import "./styles/base.css";

const target = document.getElementById("console");
if (target === null) throw new Error("index.html lacks the element #console");
mount(App, { target });
