// The suite imports a name of `fs` that Node has since version 22, for commands that are not used here.
import { register } from "node:module";

register("./imports.mjs", import.meta.url);
